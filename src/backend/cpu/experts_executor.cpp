// SPDX-License-Identifier: Apache-2.0
// Routing, and the chosen experts of all rows. Rows are gathered by expert, so that an expert's
// weights are read once however many rows chose it; each output column is then summed over the
// experts in ascending id by one thread. A kernel gives a row the same bits in any company, so the
// grouping never shows.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "algorithm/ffn/routing.hpp"
#include "backend/cpu/activation.hpp"
#include "backend/cpu/executor.hpp"
#include "backend/cpu/linear.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// Reads distinct whole numbers below `bound`; false if they are not.
bool read_ids(const float* values, std::size_t n, std::size_t bound, std::uint32_t* ids) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    if (!(values[i] >= 0.f && values[i] < static_cast<float>(bound))) return false;
    ids[i] = static_cast<std::uint32_t>(values[i]);
    if (std::find(ids, ids + i, ids[i]) != ids + i) return false;
  }
  return true;
}

class RouteExecutor final : public Executor {
 public:
  RouteExecutor(const backend::Route& op, const Context& context)
      : op_(op),
        correction_(context.vector(op.correction)),
        expert_scale_(context.vector(op.expert_scale)) {
    LEMMA_CHECK(op.logits.width == op.spec.experts && op.ids.width == op.spec.chosen);
    for (int t = 0; t < context.pool.threads(); ++t) {
      Scratch& s = scratch_.emplace_back();
      s.scores.resize(op.spec.scratch_size());
      s.entry.resize(op.spec.chosen);
      s.ids.resize(op.spec.chosen);
      s.hashed.resize(op.spec.hashed ? op.spec.chosen : 0);
    }
  }

  void run(Context& context) noexcept override {
    // A score is an exp, and the choice compares each expert a few times.
    constexpr std::size_t kWorkPerExpert = 64;
    const std::size_t work = context.rows() * op_.spec.experts * kWorkPerExpert;
    context.each(context.rows(), work, [&](std::size_t r, int thread) {
      route_row(context, r, scratch_[static_cast<std::size_t>(thread)]);
    });
    context.settle(op_.logits);
  }

 private:
  struct Scratch {
    std::vector<float> scores, entry;
    std::vector<std::uint32_t> ids, hashed;
  };

  void route_row(Context& context, std::size_t r, Scratch& s) const noexcept {
    const std::size_t k = op_.spec.chosen;
    float* const ids = context.arena.row(op_.ids, r);
    float* const weights = context.arena.row(op_.weights, r);
    bool routed = true;
    if (op_.spec.hashed) {
      const weights::Matrix& table = context.weight(op_.hash_table).matrix;
      weights::traits(table.format)
          .dequantize(table.row(static_cast<std::uint64_t>(context.step().tokens[r])), s.entry);
      routed = read_ids(s.entry.data(), k, op_.spec.experts, s.hashed.data());
    }
    const algorithm::RouteInputs inputs{
        {context.arena.row(op_.logits, r), op_.logits.width}, correction_, expert_scale_, s.hashed};
    if (!routed || !algorithm::route(op_.spec, inputs, s.scores, s.ids, {weights, k})) {
      // Whoever reads the failed row finds experts that exist and count for nothing.
      context.mark(r);
      std::iota(s.ids.begin(), s.ids.end(), 0u);
      std::fill_n(weights, k, 0.f);
    }
    std::copy(s.ids.begin(), s.ids.end(), ids);
  }

  backend::Route op_;
  std::span<const float> correction_, expert_scale_;
  std::vector<Scratch> scratch_;  ///< by thread
};

/// The rows of a step by the experts that they chose; an entry is a pair of both. Experts ascend,
/// and within one its rows.
class Grouping {
 public:
  Grouping() = default;
  Grouping(std::size_t rows, std::size_t chosen, std::size_t experts)
      : ids_(rows * chosen),
        offsets_(experts + 1),
        rows_(rows * chosen),
        ranks_(rows * chosen),
        weights_(rows * chosen),
        runs_(rows * chosen),
        run_offsets_(experts + 1),
        active_(experts) {}

  /// Groups rows [first, first + rows) of the context's step. Rows whose ids are no ids are marked
  /// and left out.
  void make(Context& context, const backend::Experts& op, std::size_t first,
            std::size_t rows) noexcept {
    const std::size_t k = op.ids.width, experts = op.experts;
    first_row_ = first;
    row_count_ = rows;
    std::fill(offsets_.begin(), offsets_.end(), 0u);
    for (std::size_t r = 0; r < rows; ++r) {
      std::uint32_t* const ids = ids_.data() + r * k;
      if (!read_ids(context.arena.row(op.ids, first + r), k, experts, ids)) {
        context.mark(first + r);
        std::fill_n(ids, k, kNoExpert);
        continue;
      }
      for (std::size_t i = 0; i < k; ++i) ++offsets_[ids[i] + 1];
    }
    std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
    // While it is filled, offsets_[e] runs from the begin of its group to its end.
    for (std::size_t i = 0; i < rows * k; ++i) {
      if (ids_[i] == kNoExpert) continue;
      const std::uint32_t entry = offsets_[ids_[i]]++;
      rows_[entry] = static_cast<std::uint32_t>(first + i / k);
      ranks_[entry] = static_cast<std::uint32_t>(i % k);
      weights_[entry] = context.arena.row(op.weights, first + i / k)[i % k];
    }
    for (std::size_t e = experts; e > 0; --e) offsets_[e] = offsets_[e - 1];
    offsets_[0] = 0;
    make_runs(context);
  }

  std::size_t first_row() const noexcept { return first_row_; }
  std::size_t row_count() const noexcept { return row_count_; }
  std::size_t entries() const noexcept { return offsets_.back(); }
  std::size_t begin(std::size_t expert) const noexcept { return offsets_[expert]; }
  std::size_t count(std::size_t expert) const noexcept {
    return offsets_[expert + 1] - offsets_[expert];
  }
  /// Experts with rows, ascending.
  std::span<const std::uint32_t> active() const noexcept { return {active_.data(), active_count_}; }
  std::size_t row(std::size_t entry) const noexcept { return rows_[entry]; }
  /// Where among its row's experts the entry's stands.
  std::size_t rank(std::size_t entry) const noexcept { return ranks_[entry]; }
  float weight(std::size_t entry) const noexcept { return weights_[entry]; }
  /// Runs of one token class among an expert's rows, counted from its first.
  std::span<const ClassRun> runs(std::size_t expert) const noexcept {
    return {runs_.data() + run_offsets_[expert], run_offsets_[expert + 1] - run_offsets_[expert]};
  }
  std::size_t bytes() const noexcept {
    return ids_.size() * 4 * sizeof(std::uint32_t) + runs_.size() * sizeof(ClassRun) +
           offsets_.size() * 3 * sizeof(std::uint32_t);
  }

 private:
  static constexpr std::uint32_t kNoExpert = ~std::uint32_t{0};

  void make_runs(const Context& context) noexcept {
    std::uint32_t runs = 0;
    active_count_ = 0;
    for (std::size_t e = 0; e + 1 < offsets_.size(); ++e) {
      run_offsets_[e] = runs;
      if (count(e) > 0) active_[active_count_++] = static_cast<std::uint32_t>(e);
      for (std::size_t i = 0; i < count(e); ++i) {
        const std::size_t token_class = context.class_of(rows_[begin(e) + i]);
        if (runs == run_offsets_[e] || runs_[runs - 1].token_class != token_class) {
          runs_[runs++] = {i, 0, token_class};
        }
        ++runs_[runs - 1].rows;
      }
    }
    run_offsets_.back() = runs;
  }

  std::vector<std::uint32_t> ids_;      ///< [rows, k]
  std::vector<std::uint32_t> offsets_;  ///< [E + 1]: entries of each expert
  std::vector<std::uint32_t> rows_;     ///< by entry
  std::vector<std::uint32_t> ranks_;    ///< by entry
  std::vector<float> weights_;          ///< by entry
  std::vector<ClassRun> runs_;
  std::vector<std::uint32_t> run_offsets_;  ///< [E + 1]
  std::vector<std::uint32_t> active_;
  std::size_t active_count_ = 0;
  std::size_t first_row_ = 0, row_count_ = 0;
};

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
  }
  static base::AlignedBuffer floats(std::size_t n) {
    return base::AlignedBuffer::uninitialized(n * sizeof(float));
  }
  std::size_t bytes() const noexcept {
    return threads.size() * threads.front().size() * sizeof(float) + in.size() + hidden.size() +
           quantized_in.bytes() + quantized_hidden.bytes();
  }

  base::AlignedBuffer in;            ///< [entries, D], if a product reads f32 or inputs are weighed
  QuantizedBuffer quantized_in;      ///< [entries, D], if a product reads int8
  base::AlignedBuffer hidden;        ///< [entries, F], or
  QuantizedBuffer quantized_hidden;  ///< the same in int8
  std::vector<std::vector<float>> threads;  ///< [2, rows, 64] of each
};

/// Rows that are worked on together, of `bytes` bytes of scratch each: as many as an expert's
/// weights should be read for at a time, but no more than fill 32 MiB.
std::size_t rows_together(std::size_t max_rows, std::size_t bytes) noexcept {
  constexpr std::size_t kRoom = std::size_t{32} << 20, kFewest = 64;
  return std::min(max_rows, std::max(kFewest, kRoom / bytes));
}

/// Three phases of one region: gathering, the hidden rows, the sums. Where the scratch of all rows
/// of a step would be large, a region for each slice of them.
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
    groups_ = Grouping(slice_, op.ids.width, op.experts);
    const auto flag = [](bool set) { return std::size_t{set ? 1u : 0u}; };
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
    if (phase == 2) return combine(context, item, scratch);
    const std::size_t chunks = (hidden_width_ + Linear::kChunk - 1) / Linear::kChunk;
    widen(context, groups_.active()[item / chunks], item % chunks, scratch);
  }

  void finish(Context& context) noexcept override { context.settle(op_.ids); }

  backend::Tensor reads_quantized() const noexcept override {
    return wants_int8_ && !op_.weigh_inputs ? op_.in : backend::Tensor{};
  }
  std::string implementation() const override { return implementations({&gate_, &up_, &down_}); }
  std::string format() const override { return formats({&gate_, &up_, &down_}); }
  std::size_t scratch_bytes() const noexcept override { return groups_.bytes(); }

 private:
  bool takes_floats() const noexcept { return !scratch_->in.empty(); }
  float* in() noexcept { return reinterpret_cast<float*>(scratch_->in.data()); }
  float* hidden() noexcept { return reinterpret_cast<float*>(scratch_->hidden.data()); }

  std::size_t begin_slice(Context& context, std::size_t first, std::size_t rows,
                          Phases& phases) noexcept {
    groups_.make(context, op_, first, rows);
    expect_weights();
    const std::size_t entries = groups_.entries(), product = hidden_width_ * width_;
    const auto chunks = [](std::size_t n) { return (n + Linear::kChunk - 1) / Linear::kChunk; };
    phases[0] = {entries, entries * width_};
    phases[1] = {groups_.active().size() * chunks(hidden_width_), 2 * entries * product};
    phases[2] = {chunks(width_), entries * product};
    return 3;
  }

  /// The chosen experts' weights will be read, some of them perhaps from the file.
  void expect_weights() const noexcept {
    for (const std::size_t expert : groups_.active()) {
      if (gated_) gate_.expect(expert * hidden_width_, hidden_width_);
      up_.expect(expert * hidden_width_, hidden_width_);
      down_.expect(expert * width_, width_);
    }
  }

  /// The input of an entry, weighed if the model says so, in the forms that the products read.
  void gather(Context& context, std::size_t entry) noexcept {
    const std::size_t row = groups_.row(entry);
    const float* const x = context.arena.row(op_.in, row);
    float* const to = !takes_floats() ? nullptr : in() + entry * width_;
    if (op_.weigh_inputs) {
      for (std::size_t i = 0; i < width_; ++i) to[i] = groups_.weight(entry) * x[i];
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

  /// One chunk of an expert's hidden rows. `scratch` holds [2, rows, 64].
  void widen(Context& context, std::size_t expert, std::size_t chunk, float* scratch) noexcept {
    const std::size_t begin = groups_.begin(expert), rows = groups_.count(expert);
    const std::size_t first = chunk * Linear::kChunk, at = expert * hidden_width_ + first;
    const std::size_t count = std::min(Linear::kChunk, hidden_width_ - first);
    ProductInput input{!takes_floats() ? nullptr : in() + begin * width_, {}, groups_.runs(expert)};
    if (wants_int8_) input.quantized = scratch_->quantized_in.rows(width_, begin);
    float* const up = scratch;
    float* const gate = scratch + rows * Linear::kChunk;
    up_.run(context.kernels, input, at, count, up, Linear::kChunk);
    if (gated_) gate_.run(context.kernels, input, at, count, gate, Linear::kChunk);
    for (std::size_t r = 0; r < rows; ++r) {
      float* const own = up + r * Linear::kChunk;
      activate(context.kernels, op_.spec.activation, gated_ ? gate + r * Linear::kChunk : own,
               gated_ ? own : nullptr, count, own);
      if (op_.hidden) {
        float* const row = context.arena.row(op_.hidden, groups_.row(begin + r));
        std::memcpy(row + groups_.rank(begin + r) * hidden_width_ + first, own,
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
    for (std::size_t r = 0; r < groups_.row_count(); ++r) {
      std::fill_n(context.arena.row(op_.out, groups_.first_row() + r) + first, count, 0.f);
    }
    for (const std::size_t expert : groups_.active()) {
      const std::size_t begin = groups_.begin(expert);
      ProductInput input{scratch_->hidden.empty() ? nullptr : hidden() + begin * hidden_width_,
                         {},
                         groups_.runs(expert)};
      if (down_.wants_int8())
        input.quantized = scratch_->quantized_hidden.rows(hidden_width_, begin);
      down_.run(context.kernels, input, expert * width_ + first, count, scratch, Linear::kChunk);
      for (std::size_t i = 0; i < groups_.count(expert); ++i) {
        float* const out = context.arena.row(op_.out, groups_.row(begin + i)) + first;
        const float* const y = scratch + i * Linear::kChunk;
        const float weight = op_.weigh_inputs ? 1.f : groups_.weight(begin + i);
        for (std::size_t c = 0; c < count; ++c) out[c] += weight * y[c];
      }
    }
  }

  backend::Experts op_;
  std::size_t width_, hidden_width_;  ///< of one expert
  Linear gate_, up_, down_;           ///< stacks
  bool gated_, wants_int8_ = false;
  std::size_t slice_ = 0;  ///< rows that are worked on together
  Grouping groups_;        ///< of the running slice
  ExpertsScratch* scratch_;
  QuantizedRows rounded_;  ///< the running step's rows, if a product reads them in int8
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Route& op, const Context& context) {
  return std::make_unique<RouteExecutor>(op, context);
}
std::unique_ptr<Executor> plan(const backend::Experts& op, const Context& context) {
  return std::make_unique<ExpertsExecutor>(op, context);
}

}  // namespace lemma::cpu
