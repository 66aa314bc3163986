// SPDX-License-Identifier: Apache-2.0
// The chosen experts of all rows. Rows are gathered by expert; each output column is then summed
// over the experts in ascending id by one thread. A kernel gives a row the same bits in any
// company, so the grouping never shows.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/activation.hpp"
#include "backend/cpu/executor.hpp"
#include "backend/cpu/expert_grouping.hpp"
#include "backend/cpu/linear.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// Memory of chosen experts, shared by the layers. An entry is a row with one of its experts.
/// Shape: rows, chosen, D, F, and 1 for each form that is needed: int8 inputs, f32 inputs, int8
/// hidden rows.
struct ExpertsScratch {
  ExpertsScratch(const Context& context, std::span<const std::size_t> all) {
    const std::size_t entries = all[0] * all[1];
    const std::span<const std::size_t> shape = all.subspan(1);
    if (shape[3] != 0) quantized_in = QuantizedBuffer(context.kernels, entries, shape[1]);
    if (shape[4] != 0) in = floats(entries * shape[1]);
    if (shape[5] != 0) {
      quantized_hidden = QuantizedBuffer(context.kernels, entries, shape[2]);
    } else {
      hidden = floats(entries * shape[2]);
    }
    threads.resize(static_cast<std::size_t>(context.pool.threads()));
    for (auto& scratch : threads) scratch.resize(2 * all[0] * Linear::kChunk);
    const std::size_t few = std::min(all[0], Linear::kFewRows) * all[1];
    products.resize(2 * few * shape[2]);
    parts.resize(few * shape[1]);
  }
  static base::AlignedBuffer floats(std::size_t n) {
    return base::AlignedBuffer::uninitialized(n * sizeof(float));
  }
  std::size_t bytes() const noexcept {
    return (threads.size() * threads.front().size() + products.size() + parts.size()) *
               sizeof(float) +
           in.size() + hidden.size() + quantized_in.bytes() + quantized_hidden.bytes();
  }

  base::AlignedBuffer in;            ///< [entries, D], if a product reads f32 or inputs are weighed
  QuantizedBuffer quantized_in;      ///< [entries, D], if a product reads int8
  base::AlignedBuffer hidden;        ///< [entries, F], or
  QuantizedBuffer quantized_hidden;  ///< the same in int8
  std::vector<std::vector<float>> threads;  ///< [2, rows, 64] of each
  std::vector<float> products;              ///< of a few rows, [2, entries, F]: up's and gate's
  std::vector<float> parts;                 ///< of a few rows, [entries, D]: what is summed
};

/// Rows that are worked on together, of `bytes` bytes of scratch each: as many as an expert's
/// weights should be read for at a time, but no more than fill 32 MiB.
std::size_t rows_together(std::size_t max_rows, std::size_t bytes) noexcept {
  constexpr std::size_t kRoom = std::size_t{32} << 20, kFewest = 64;
  return std::min(max_rows, std::max(kFewest, kRoom / bytes));
}

/// Three phases of one region: gathering, the hidden rows, the sums. Where the scratch of all rows
/// of a step would be large, a region for each slice of them.
///
/// For a few rows memory is what counts, and the longer it is read in order the better: a thread
/// goes through whole matrices, an expert's up, its gate, the next one's up; in the last phase
/// through its down. Who makes the second product of a chunk of hidden elements finishes it, and
/// who makes the last expert's part of some outputs sums them, in ascending id as ever.
class ExpertsExecutor final : public PhasedExecutor {
 public:
  ExpertsExecutor(const backend::Experts& op, const Context& context)
      : op_(op),
        width_(op.spec.width),
        hidden_width_(op.spec.hidden),
        up_(context, op.up, op.up_bias),
        down_(context, op.down, op.down_bias),
        gated_(op.gate != backend::kNoWeight) {
    if (gated_) gate_ = Linear(context, op.gate, op.gate_bias);
    LEMMA_CHECK(op.in.width == width_ && op.out.width == width_ && up_.cols() == width_);
    LEMMA_CHECK(up_.outputs() == std::size_t{op.experts} * hidden_width_);
    LEMMA_CHECK(!gated_ || gate_.outputs() == up_.outputs());
    LEMMA_CHECK(down_.outputs() == std::size_t{op.experts} * width_);
    LEMMA_CHECK(down_.cols() == hidden_width_);
    LEMMA_CHECK(!op.hidden || op.hidden.width == op.ids.width * hidden_width_);
    const bool all_int8 = up_.wants_int8() && (!gated_ || gate_.wants_int8());
    wants_int8_ = up_.wants_int8() || (gated_ && gate_.wants_int8());
    const bool floats = !all_int8 || op.weigh_inputs;
    const std::size_t rounded = context.kernels.bf16_rows ? 4 : 2;
    const std::size_t bytes = width_ * ((wants_int8_ ? rounded : 0u) + (floats ? 4u : 0u)) +
                              hidden_width_ * (down_.wants_int8() ? rounded : 4u);
    slice_ = rows_together(context.max_rows, op.ids.width * bytes);
    groups_ = &context.shared<Grouping>({slice_, op.ids.width, op.experts});
    const auto flag = [](bool set) { return std::size_t{set ? 1u : 0u}; };
    const std::size_t most = std::min<std::size_t>(op.experts, Linear::kFewRows * op.ids.width);
    met_ = Meetings(most * chunks(hidden_width_));
    summed_ = Meetings(chunks(width_));
    scratch_ = &context.shared<ExpertsScratch>({slice_, op.ids.width, width_, hidden_width_,
                                                flag(wants_int8_), flag(floats),
                                                flag(down_.wants_int8())});
  }

  std::size_t begin(Context& context, Phases& phases) noexcept override {
    rounded_ = {};
    if (wants_int8_ && !op_.weigh_inputs) rounded_ = context.quantized(op_.in);
    std::size_t first = 0;
    for (; context.rows() - first > slice_; first += slice_) {
      Phases own;
      const std::size_t count = begin_slice(context, first, slice_, own);
      context.each({own.data(), count}, [&](std::size_t phase, std::size_t item, int thread) {
        run_item(context, phase, item, thread);
      });
    }
    return begin_slice(context, first, context.rows() - first, phases);
  }

  void run_item(Context& context, std::size_t phase, std::size_t item,
                int thread) noexcept override {
    float* const scratch = scratch_->threads[static_cast<std::size_t>(thread)].data();
    if (phase == 0) return gather(context, item);
    if (few_) return phase == 1 ? widen_few(context, item) : combine_few(context, item);
    if (phase == 2) return combine(context, item, scratch);
    const std::size_t some = chunks(hidden_width_);
    widen(context, groups_->active()[item / some], item % some, scratch);
  }

  void finish(Context& context) noexcept override { context.settle(op_.ids); }

  backend::Tensor reads_quantized() const noexcept override {
    return wants_int8_ && !op_.weigh_inputs ? op_.in : backend::Tensor{};
  }
  std::string implementation() const override { return implementations({&gate_, &up_, &down_}); }
  std::string format() const override { return formats({&gate_, &up_, &down_}); }

 private:
  static constexpr std::size_t chunks(std::size_t n) noexcept {
    return (n + Linear::kChunk - 1) / Linear::kChunk;
  }

  bool takes_floats() const noexcept { return !scratch_->in.empty(); }
  float* in() noexcept { return reinterpret_cast<float*>(scratch_->in.data()); }
  float* hidden() noexcept { return reinterpret_cast<float*>(scratch_->hidden.data()); }

  std::size_t begin_slice(Context& context, std::size_t first, std::size_t rows,
                          Phases& phases) noexcept {
    groups_->make(context, op_, first, rows);
    expect_weights();
    const std::size_t entries = groups_->entries(), product = hidden_width_ * width_;
    const std::size_t active = groups_->active().size();
    few_ = rows <= Linear::kFewRows && active > 0;
    direct_ = context.rows() == 1 && !op_.weigh_inputs;
    phases[0] = {direct_ ? 0 : entries, entries * width_};
    phases[1] = {active * chunks(hidden_width_) * (few_ && gated_ ? 2 : 1), 2 * entries * product};
    phases[2] = {(few_ ? active : 1) * chunks(width_), entries * product};
    return 3;
  }

  /// The chosen experts' weights will be read, some of them perhaps from the file.
  void expect_weights() const noexcept {
    for (const std::size_t expert : groups_->active()) {
      if (gated_) gate_.expect(expert * hidden_width_, hidden_width_);
      up_.expect(expert * hidden_width_, hidden_width_);
      down_.expect(expert * width_, width_);
    }
  }

  /// The input of an entry, weighed if the model says so, in the forms that the products read.
  void gather(Context& context, std::size_t entry) noexcept {
    const std::size_t row = groups_->row(entry);
    const float* const x = context.arena.row(op_.in, row);
    float* const to = !takes_floats() ? nullptr : in() + entry * width_;
    if (op_.weigh_inputs) {
      for (std::size_t i = 0; i < width_; ++i) to[i] = groups_->weight(entry) * x[i];
    } else if (takes_floats()) {
      std::memcpy(to, x, width_ * sizeof(float));
    }
    if (!wants_int8_) return;
    const QuantizedRows own = scratch_->quantized_in.rows(width_, entry);
    if (op_.weigh_inputs) {
      context.kernels.quantize(to, width_, own);
    } else {
      copy_row(rounded_, row, own);
    }
  }

  void copy_row(const QuantizedRows& from, std::size_t row,
                const QuantizedRows& to) const noexcept {
    const std::size_t groups = width_ / kGroup;
    std::memcpy(to.codes, from.codes + row * width_, width_);
    std::memcpy(to.scales, from.scales + row * groups, groups * sizeof(float));
    std::memcpy(to.scaled_sums, from.scaled_sums + row * groups, groups * sizeof(float));
    std::memcpy(to.sums, from.sums + row * groups * 3, groups * 3 * sizeof(std::int32_t));
    if (to.bf16 != nullptr) {
      std::memcpy(to.bf16, from.bf16 + row * width_, width_ * sizeof(std::uint16_t));
    }
  }

  /// What the products of an expert's rows with up and gate read. A single row need not be
  /// gathered.
  ProductInput input(Context& context, std::size_t expert) noexcept {
    const std::size_t begin = groups_->begin(expert);
    ProductInput input{nullptr, {}, groups_->runs(expert)};
    if (takes_floats()) input.x = direct_ ? context.arena.row(op_.in, 0) : in() + begin * width_;
    if (wants_int8_) {
      input.quantized = direct_ ? rounded_ : scratch_->quantized_in.rows(width_, begin);
    }
    return input;
  }
  /// What the product of an expert's rows with down reads.
  ProductInput hidden_input(std::size_t expert) noexcept {
    const std::size_t begin = groups_->begin(expert);
    ProductInput input{nullptr, {}, groups_->runs(expert)};
    if (down_.wants_int8()) {
      input.quantized = scratch_->quantized_hidden.rows(hidden_width_, begin);
    } else {
      input.x = hidden() + begin * hidden_width_;
    }
    return input;
  }

  /// One chunk of an expert's hidden rows. `scratch` holds [2, rows, 64].
  void widen(Context& context, std::size_t expert, std::size_t chunk, float* scratch) noexcept {
    const std::size_t first = chunk * Linear::kChunk, at = expert * hidden_width_ + first;
    const std::size_t count = std::min(Linear::kChunk, hidden_width_ - first);
    const ProductInput x = input(context, expert);
    float* const gate = scratch + groups_->count(expert) * Linear::kChunk;
    up_.run(context.kernels, x, at, count, scratch, Linear::kChunk);
    if (gated_) gate_.run(context.kernels, x, at, count, gate, Linear::kChunk);
    hide(context, expert, first, count, scratch, gated_ ? gate : nullptr, Linear::kChunk);
  }

  /// A chunk of an expert's rows with up or gate.
  struct PartProduct {
    const Linear* linear;
    std::size_t place;         ///< of the expert among the active ones
    std::size_t chunk, first;  ///< first: output of the stack
    bool is_gate;
  };
  PartProduct product_of(std::size_t item) const noexcept {
    const std::size_t some = chunks(hidden_width_), both = gated_ ? 2 * some : some;
    const std::size_t place = item / both, chunk = item % some;
    const bool is_gate = item % both >= some;
    return {is_gate ? &gate_ : &up_, place, chunk,
            groups_->active()[place] * hidden_width_ + chunk * Linear::kChunk, is_gate};
  }

  /// The same, and where both products are there hidden elements.
  void widen_few(Context& context, std::size_t item) noexcept {
    const PartProduct own = product_of(item);
    const std::size_t some = chunks(hidden_width_), first = own.chunk * Linear::kChunk;
    const std::size_t expert = groups_->active()[own.place];
    const std::size_t count = std::min(Linear::kChunk, hidden_width_ - first);
    float* const up = scratch_->products.data() + groups_->begin(expert) * hidden_width_ + first;
    float* const gate = up + groups_->entries() * hidden_width_;
    own.linear->run(context.kernels, input(context, expert), own.first, count,
                    own.is_gate ? gate : up, hidden_width_);
    if (gated_ && !met_.last(own.place * some + own.chunk, 1, 2)) return;
    hide(context, expert, first, count, up, gated_ ? gate : nullptr, hidden_width_);
  }

  /// Hidden elements [first, first + count) of an expert's rows from its products with up and gate.
  void hide(Context& context, std::size_t expert, std::size_t first, std::size_t count, float* up,
            const float* gate, std::size_t stride) noexcept {
    const std::size_t begin = groups_->begin(expert);
    for (std::size_t r = 0; r < groups_->count(expert); ++r) {
      float* const own = up + r * stride;
      activate(context.kernels, op_.spec.activation, gated_ ? gate + r * stride : own,
               gated_ ? own : nullptr, count, own);
      if (op_.hidden) {
        float* const row = context.arena.row(op_.hidden, groups_->row(begin + r));
        std::memcpy(row + groups_->rank(begin + r) * hidden_width_ + first, own,
                    count * sizeof(float));
      }
      if (down_.wants_int8()) {
        context.kernels.quantize(own, count,
                                 scratch_->quantized_hidden.rows(hidden_width_, begin + r, first));
      } else {
        std::memcpy(hidden() + (begin + r) * hidden_width_ + first, own, count * sizeof(float));
      }
    }
  }

  /// One chunk of every row's output: the experts in ascending id.
  void combine(Context& context, std::size_t chunk, float* scratch) noexcept {
    const std::size_t first = chunk * Linear::kChunk;
    const std::size_t count = std::min(Linear::kChunk, width_ - first);
    clear(context, first, count);
    for (const std::size_t expert : groups_->active()) {
      down_.run(context.kernels, hidden_input(expert), expert * width_ + first, count, scratch,
                Linear::kChunk);
      add(context, expert, first, count, scratch, Linear::kChunk);
    }
  }

  /// Some outputs of one expert, and where all experts' are there their sums.
  void combine_few(Context& context, std::size_t item) noexcept {
    const std::size_t some = chunks(width_), chunk = item % some;
    const std::size_t place = item / some, first = chunk * Linear::kChunk;
    const std::size_t count = std::min(Linear::kChunk, width_ - first);
    const std::span<const std::uint32_t> active = groups_->active();
    const auto part = [&](std::size_t expert) {
      return scratch_->parts.data() + groups_->begin(expert) * width_ + first;
    };
    down_.run(context.kernels, hidden_input(active[place]), active[place] * width_ + first, count,
              part(active[place]), width_);
    if (!summed_.last(chunk, 1, active.size())) return;
    clear(context, first, count);
    for (const std::size_t expert : active) {
      add(context, expert, first, count, part(expert), width_);
    }
  }

  void clear(Context& context, std::size_t first, std::size_t count) noexcept {
    for (std::size_t r = 0; r < groups_->row_count(); ++r) {
      std::fill_n(context.arena.row(op_.out, groups_->first_row() + r) + first, count, 0.f);
    }
  }

  /// Adds an expert's part of outputs [first, first + count), one row behind the other.
  void add(Context& context, std::size_t expert, std::size_t first, std::size_t count,
           const float* part, std::size_t stride) noexcept {
    const std::size_t begin = groups_->begin(expert);
    for (std::size_t i = 0; i < groups_->count(expert); ++i) {
      float* const out = context.arena.row(op_.out, groups_->row(begin + i)) + first;
      const float* const y = part + i * stride;
      const float weight = op_.weigh_inputs ? 1.f : groups_->weight(begin + i);
      for (std::size_t c = 0; c < count; ++c) out[c] += weight * y[c];
    }
  }

  backend::Experts op_;
  std::size_t width_, hidden_width_;  ///< of one expert
  Linear gate_, up_, down_;           ///< stacks
  bool gated_, wants_int8_ = false;
  std::size_t slice_ = 0;  ///< rows that are worked on together
  Grouping* groups_;       ///< of the running slice
  ExpertsScratch* scratch_;
  bool few_ = false;       ///< of the running slice: few rows
  bool direct_ = false;    ///< products read the step's only row where it lies
  Meetings met_;           ///< of up and gate, by active expert and chunk
  Meetings summed_;        ///< of the active experts, by some outputs
  QuantizedRows rounded_;  ///< the running step's rows, if a product reads them in int8
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Experts& op, const Context& context) {
  return std::make_unique<ExpertsExecutor>(op, context);
}

}  // namespace lemma::cpu
