// SPDX-License-Identifier: Apache-2.0
// The operations around matrix products: project, mlp, head. Threads take chunks of 64 outputs; a
// chunk covers all rows, so that a packed weight is read once however many rows there are. Where
// nobody has rounded the rows that a product reads, that is the first phase of its region.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string_view>
#include <vector>

#include "backend/cpu/activation.hpp"
#include "backend/cpu/executor.hpp"
#include "backend/cpu/linear.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

void append_once(std::string& list, std::string_view item) {
  if (list.find(item) != std::string::npos) return;
  if (!list.empty()) list += ", ";
  list += item;
}

/// The input of products, rounded to int8 if they want that: by whoever made it, here, or in a
/// phase of its own.
class Rounding {
 public:
  Rounding(backend::Tensor in, bool wanted) : in_(in), wanted_(wanted) {}

  backend::Tensor reads_quantized() const noexcept { return wanted_ ? in_ : backend::Tensor{}; }
  /// The rows for the running step; whether they are still to be rounded, by `phase`.
  ProductInput begin(Context& context) noexcept {
    ProductInput in{context.arena.data(in_), {}, context.runs()};
    to_ = nullptr;
    if (!wanted_) return in;
    const QuantizedBuffer* rounded = context.find_quantized(in_);
    if (rounded == nullptr && context.rows() >= Context::kFewRows) {
      rounded = to_ = &context.begin_quantized(in_);
    }
    in.quantized = rounded != nullptr ? rounded->rows(in_.width) : context.quantized(in_);
    return in;
  }
  bool pending() const noexcept { return to_ != nullptr; }
  Phase phase(const Context& context) const noexcept {
    return {(context.rows() + Context::kRowGrain - 1) / Context::kRowGrain,
            context.rows() * in_.width};
  }
  void run_item(const Context& context, std::size_t item) const noexcept {
    const std::size_t begin = item * Context::kRowGrain;
    const std::size_t end = std::min(begin + Context::kRowGrain, context.rows());
    context.kernels.quantize(context.arena.row(in_, begin), (end - begin) * in_.width,
                             to_->rows(in_.width, begin));
  }

 private:
  backend::Tensor in_;
  bool wanted_;
  const QuantizedBuffer* to_ = nullptr;  ///< of the running step
};

class ProjectExecutor final : public PhasedExecutor {
 public:
  ProjectExecutor(const backend::Project& op, const Context& context)
      : parts_(op.outputs.size()), rounding_(op.in, reads_rounded(op, context)) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto& output = op.outputs[i];
      const Linear& linear = parts_[i].linear =
          Linear(context, output.weight, output.bias, op.clamp);
      LEMMA_CHECK(linear.outputs() == output.out.width && linear.cols() == op.in.width);
      parts_[i].out = output.out;
      chunks_ += linear.chunks();
      work_ += linear.work(1);
    }
  }

  std::size_t begin(Context& context, Phases& phases) noexcept override {
    for (std::atomic<std::uint32_t>& left : left_) left.store(0, std::memory_order_relaxed);
    in_ = rounding_.begin(context);
    std::size_t count = 0;
    if (rounding_.pending()) phases[count++] = rounding_.phase(context);
    phases[count++] = {chunks_, context.rows() * work_};
    return count;
  }

  void run_item(Context& context, std::size_t phase, std::size_t chunk, int) noexcept override {
    if (phase == 0 && rounding_.pending()) return rounding_.run_item(context, chunk);
    // The last output first: what follows the small ones is then not left to the end.
    std::size_t i = parts_.size() - 1;
    for (; chunk >= parts_[i].linear.chunks(); --i) chunk -= parts_[i].linear.chunks();
    const Part& part = parts_[i];
    part.linear.run(context.kernels, in_, chunk,
                    context.arena.data(part.out) + chunk * Linear::kChunk, part.out.width);
    if (!part.followers.empty()) finish_columns(context, part, chunk);
  }

  bool follow(std::span<const Follower> followers) override {
    std::vector<Part> parts = parts_;
    std::vector<backend::Tensor> made;  // by part: what its last follower made
    for (const Part& part : parts) made.push_back(part.out);
    for (const Follower& follower : followers) {
      const auto at = std::find_if(made.begin(), made.end(), [&](backend::Tensor tensor) {
        return tensor.id == follower.in.id;
      });
      const std::size_t unit = follower.executor->column_unit();
      if (at == made.end() || unit == 0) return false;
      Part& part = parts[static_cast<std::size_t>(at - made.begin())];
      part.followers.push_back(follower.executor);
      part.chunks = std::lcm(part.chunks * Linear::kChunk, unit) / Linear::kChunk;
      if (follower.out) *at = follower.out;
    }
    parts_ = std::move(parts);
    std::size_t groups = 0;
    for (Part& part : parts_) {
      part.group = groups;
      groups += (part.linear.chunks() + part.chunks - 1) / part.chunks;
    }
    left_ = std::vector<std::atomic<std::uint32_t>>(groups);
    return true;
  }

  backend::Tensor reads_quantized() const noexcept override { return rounding_.reads_quantized(); }
  std::string implementation() const override {
    std::string names;
    for (const Part& part : parts_) append_once(names, part.linear.describe());
    return names;
  }
  std::string format() const override {
    std::string names;
    for (const Part& part : parts_) {
      append_once(names, weights::traits(part.linear.weight().matrix.format).name);
    }
    return names;
  }

 private:
  /// One weight, and what whoever makes the last of a few neighbouring chunks does with them.
  struct Part {
    Linear linear;
    backend::Tensor out;
    std::vector<RowExecutor*> followers;
    std::size_t chunks = 1;  ///< neighbours that hold whole heads
    std::size_t group = 0;   ///< index of the first such group in left_
  };

  static bool reads_rounded(const backend::Project& op, const Context& context) {
    return std::any_of(op.outputs.begin(), op.outputs.end(),
                       [&](const auto& output) { return context.reads_rounded(output.weight); });
  }

  void finish_columns(Context& context, const Part& part, std::size_t chunk) noexcept {
    const std::size_t group = chunk / part.chunks, first_chunk = group * part.chunks;
    const std::size_t neighbours = std::min(part.chunks, part.linear.chunks() - first_chunk);
    std::atomic<std::uint32_t>& left = left_[part.group + group];
    if (left.fetch_add(1, std::memory_order_acq_rel) + 1 != neighbours) return;
    constexpr std::size_t kRows = 8;  // of 64 columns: they stay in the first cache
    const std::size_t first = first_chunk * Linear::kChunk, rows = context.rows();
    const std::size_t count = std::min(neighbours * Linear::kChunk, part.out.width - first);
    for (std::size_t begin = 0; begin < rows; begin += kRows) {
      const std::size_t end = std::min(begin + kRows, rows);
      for (RowExecutor* const follower : part.followers) {
        follower->run_columns(context, begin, end, first, count);
      }
    }
  }

  std::vector<Part> parts_;
  Rounding rounding_;
  ProductInput in_;                               ///< of the running step
  std::vector<std::atomic<std::uint32_t>> left_;  ///< chunks that are done, by group of neighbours
  std::size_t chunks_ = 0;
  std::size_t work_ = 0;  ///< multiply-adds of a row
};

class ProjectGroupsExecutor final : public PhasedExecutor {
 public:
  ProjectGroupsExecutor(const backend::ProjectGroups& op, const Context& context)
      : op_(op),
        linear_(context, op.weight, backend::kNoWeight),
        chunks_((op.spec.out + Linear::kChunk - 1) / Linear::kChunk) {
    LEMMA_CHECK(op.in.width == op.spec.groups * op.spec.in && linear_.cols() == op.spec.in);
    LEMMA_CHECK(op.out.width == op.spec.groups * op.spec.out);
    LEMMA_CHECK(linear_.outputs() == (op.spec.shared ? op.spec.out : op.out.width));
    if (linear_.wants_int8())
      quantized_ = QuantizedBuffer(context.kernels, context.max_rows, op.in.width);
  }

  std::size_t begin(Context& context, Phases& phases) noexcept override {
    const std::size_t groups = op_.spec.groups, rows = context.rows();
    std::size_t count = 0;
    if (linear_.wants_int8()) phases[count++] = {groups * rows, rows * op_.in.width};
    phases[count++] = {groups * chunks_, linear_.work(rows) * (op_.spec.shared ? groups : 1)};
    return count;
  }

  void run_item(Context& context, std::size_t phase, std::size_t item, int) noexcept override {
    const std::size_t in = op_.spec.in, out = op_.spec.out, rows = context.rows();
    if (linear_.wants_int8() && phase == 0) {  // by group, and then by row: a group's rows must be
      context.kernels.quantize(context.arena.row(op_.in, item % rows) + item / rows * in, in,
                               quantized_.rows(in, item));  // neighbours
      return;
    }
    const std::size_t group = item / chunks_, first = item % chunks_ * Linear::kChunk;
    ProductInput input{context.arena.data(op_.in) + group * in, {}, context.runs(), op_.in.width};
    if (linear_.wants_int8()) input.quantized = quantized_.rows(in, group * rows);
    linear_.run(context.kernels, input, (op_.spec.shared ? 0 : group * out) + first,
                std::min(Linear::kChunk, out - first),
                context.arena.data(op_.out) + group * out + first, op_.out.width);
  }

  std::string implementation() const override { return implementations({&linear_}); }
  std::string format() const override { return formats({&linear_}); }
  std::size_t scratch_bytes() const noexcept override { return quantized_.bytes(); }

 private:
  backend::ProjectGroups op_;
  Linear linear_;
  std::size_t chunks_;         ///< of a group
  QuantizedBuffer quantized_;  ///< [groups, max_rows, in]
};

/// Memory of an MLP, shared by the layers. Shape: hidden width, and 1 if hidden rows are int8.
struct MlpScratch {
  MlpScratch(const Context& context, std::span<const std::size_t> shape) {
    const std::size_t rows = context.max_rows;
    threads.resize(static_cast<std::size_t>(context.pool.threads()));
    for (auto& scratch : threads) scratch.resize(2 * rows * Linear::kChunk);
    if (shape[1] != 0) {
      quantized = QuantizedBuffer(context.kernels, rows, shape[0]);
    } else {
      hidden = base::AlignedBuffer::uninitialized(rows * shape[0] * sizeof(float));
    }
  }
  std::size_t bytes() const noexcept {
    return threads.size() * threads.front().size() * sizeof(float) + quantized.bytes() +
           hidden.size();
  }

  std::vector<std::vector<float>> threads;  ///< [2, max_rows, 64] of each
  QuantizedBuffer quantized;                ///< [max_rows, F]: hidden rows in int8, or
  base::AlignedBuffer hidden;               ///< the same in f32
};

/// gate, up and activation are one phase: a chunk of hidden elements is finished, and rounded to
/// int8 if the down projection reads that, while it is in the cache. The down projection is the
/// next.
class MlpExecutor final : public PhasedExecutor {
  static constexpr std::size_t kFewRows = 4;

 public:
  MlpExecutor(const backend::Mlp& op, const Context& context)
      : op_(op),
        up_(context, op.up, op.up_bias),
        down_(context, op.down, op.down_bias),
        gated_(op.gate != backend::kNoWeight),
        rounding_(op.in,
                  context.reads_rounded(op.up) || (gated_ && context.reads_rounded(op.gate))) {
    if (gated_) gate_ = Linear(context, op.gate, op.gate_bias);
    LEMMA_CHECK(down_.cols() == up_.outputs() && up_.cols() == op.in.width);
    LEMMA_CHECK(!gated_ || gate_.outputs() == up_.outputs());
    LEMMA_CHECK(!op.hidden || op.hidden.width == up_.outputs());
    scratch_ = &context.shared<MlpScratch>({up_.outputs(), down_.wants_int8() ? 1u : 0u});
  }

  std::size_t begin(Context& context, Phases& phases) noexcept override {
    in_ = rounding_.begin(context);
    hidden_ = {reinterpret_cast<const float*>(scratch_->hidden.data()), {}, context.runs()};
    if (down_.wants_int8()) hidden_.quantized = scratch_->quantized.rows(down_.cols());
    std::size_t count = 0;
    if (rounding_.pending()) phases[count++] = rounding_.phase(context);
    // For a few rows memory is what counts, and the longer it is read in order the better.
    chunks_at_once_ =
        gated_ && context.rows() <= kFewRows && 2 * kFewRows <= context.max_rows ? 2 : 1;
    phases[count++] = {(up_.chunks() + chunks_at_once_ - 1) / chunks_at_once_,
                       2 * up_.work(context.rows())};
    phases[count++] = {down_.chunks(), down_.work(context.rows())};
    return count;
  }

  void run_item(Context& context, std::size_t phase, std::size_t item,
                int thread) noexcept override {
    if (!rounding_.pending()) ++phase;
    if (phase == 0) return rounding_.run_item(context, item);
    if (phase == 1) {
      return widen(context, item, scratch_->threads[static_cast<std::size_t>(thread)].data());
    }
    down_.run(context.kernels, hidden_, item, context.arena.data(op_.out) + item * Linear::kChunk,
              op_.out.width);
  }

  backend::Tensor reads_quantized() const noexcept override { return rounding_.reads_quantized(); }
  std::string implementation() const override { return implementations({&gate_, &up_, &down_}); }
  std::string format() const override { return formats({&gate_, &up_, &down_}); }

 private:
  /// A few chunks of the hidden rows. `scratch` holds [2, chunks, rows, 64].
  void widen(Context& context, std::size_t item, float* scratch) noexcept {
    const std::size_t first = item * chunks_at_once_;
    const std::size_t count = std::min(chunks_at_once_, up_.chunks() - first);
    const std::size_t size = context.rows() * Linear::kChunk;
    for (std::size_t i = 0; i < count; ++i) {
      up_.run(context.kernels, in_, first + i, scratch + i * size, Linear::kChunk);
    }
    float* const gates = scratch + count * size;
    for (std::size_t i = 0; gated_ && i < count; ++i) {
      gate_.run(context.kernels, in_, first + i, gates + i * size, Linear::kChunk);
    }
    for (std::size_t i = 0; i < count; ++i) {
      hide(context, first + i, scratch + i * size, gated_ ? gates + i * size : nullptr);
    }
  }

  /// The hidden elements of a chunk from its products [rows, 64] with up and gate, some rows at a
  /// time, which stay in the first cache.
  void hide(Context& context, std::size_t chunk, float* up, const float* gate) noexcept {
    constexpr std::size_t kRows = 8;
    for (std::size_t begin = 0; begin < context.rows(); begin += kRows) {
      const std::size_t rows = std::min(kRows, context.rows() - begin);
      float* const x = up + begin * Linear::kChunk;
      // A last, narrower chunk has elements behind its own in each row, which nobody reads.
      activate(context.kernels, op_.spec.activation, gated_ ? gate + begin * Linear::kChunk : x,
               gated_ ? x : nullptr, (rows - 1) * Linear::kChunk + up_.chunk_outputs(chunk), x);
      for (std::size_t r = 0; r < rows; ++r) {
        keep(context, begin + r, chunk, x + r * Linear::kChunk);
      }
    }
  }

  /// Puts hidden elements of a row where the down projection reads them.
  void keep(Context& context, std::size_t r, std::size_t chunk, const float* x) noexcept {
    const std::size_t first = chunk * Linear::kChunk, count = up_.chunk_outputs(chunk);
    if (op_.hidden) std::memcpy(context.arena.row(op_.hidden, r) + first, x, count * sizeof(float));
    if (down_.wants_int8()) {
      context.kernels.quantize(x, count, scratch_->quantized.rows(up_.outputs(), r, first));
    } else {
      std::memcpy(reinterpret_cast<float*>(scratch_->hidden.data()) + r * up_.outputs() + first, x,
                  count * sizeof(float));
    }
  }

  backend::Mlp op_;
  Linear gate_, up_, down_;
  bool gated_;
  Rounding rounding_;
  MlpScratch* scratch_;
  ProductInput in_, hidden_;  ///< of the running step
  std::size_t chunks_at_once_ = 1;
};

class LogitsExecutor final : public HeadExecutor {
 public:
  LogitsExecutor(const backend::Head& op, const Context& context)
      : op_(op), linear_(context, op.weight, op.bias), runs_(context.max_logit_rows) {
    LEMMA_CHECK(linear_.cols() == op.in.width);
    const std::size_t rows = context.max_logit_rows;
    gathered_ = base::AlignedBuffer::uninitialized(rows * op.in.width * sizeof(float));
    logits_ = base::AlignedBuffer::uninitialized(rows * linear_.outputs() * sizeof(float));
    if (linear_.wants_int8()) quantized_ = QuantizedBuffer(context.kernels, rows, op.in.width);
  }

  void run(Context& context) noexcept override {
    const std::size_t wanted = context.step().logit_rows.size(), width = op_.in.width;
    if (wanted == 0) return;
    float* const rows = reinterpret_cast<float*>(gathered_.data());
    std::size_t runs = 0;
    for (std::size_t i = 0; i < wanted; ++i) {
      const std::uint32_t row = context.step().logit_rows[i];
      std::memcpy(rows + i * width, context.arena.row(op_.in, row), width * sizeof(float));
      const std::size_t token_class = context.class_of(row);
      if (runs == 0 || runs_[runs - 1].token_class != token_class) {
        runs_[runs++] = {i, 0, token_class};
      }
      ++runs_[runs - 1].rows;
    }
    ProductInput in{rows, {}, {runs_.data(), runs}};
    if (linear_.wants_int8()) {
      context.quantize(rows, wanted, width, quantized_);
      in.quantized = quantized_.rows(width);
    }
    const Phase chunks{linear_.chunks(), linear_.work(wanted)};
    context.each({&chunks, 1},
                 [&](std::size_t, std::size_t chunk, int) { project(context, in, chunk); });
    context.settle(op_.in);
  }

  std::span<const float> logits(std::size_t i) const noexcept override {
    return {reinterpret_cast<const float*>(logits_.data()) + i * linear_.outputs(),
            linear_.outputs()};
  }
  std::string implementation() const override { return linear_.describe(); }
  std::string format() const override {
    return std::string(weights::traits(linear_.weight().matrix.format).name);
  }
  std::size_t scratch_bytes() const noexcept override {
    return gathered_.size() + logits_.size() + quantized_.bytes();
  }

 private:
  void project(Context& context, const ProductInput& in, std::size_t chunk) noexcept {
    const std::size_t vocabulary = linear_.outputs(), count = linear_.chunk_outputs(chunk);
    float* const out = reinterpret_cast<float*>(logits_.data()) + chunk * Linear::kChunk;
    linear_.run(context.kernels, in, chunk, out, vocabulary);
    for (std::size_t i = 0; i < context.step().logit_rows.size(); ++i) {
      float* const row = out + i * vocabulary;
      if (op_.scale != 1.f) {
        for (std::size_t o = 0; o < count; ++o) row[o] *= op_.scale;
      }
      if (op_.softcap != 0.f) context.kernels.softcap(row, count, op_.softcap);
      // In f64 the squares of finite f32 numbers cannot overflow.
      if (!std::isfinite(context.kernels.sum_of_squares(row, count, 0.0)))
        context.mark(context.step().logit_rows[i]);
    }
  }

  backend::Head op_;
  Linear linear_;
  std::vector<ClassRun> runs_;
  base::AlignedBuffer gathered_;  ///< [rows that want logits, D]
  base::AlignedBuffer logits_;    ///< [rows that want logits, V]
  QuantizedBuffer quantized_;
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Project& op, const Context& context) {
  return std::make_unique<ProjectExecutor>(op, context);
}
std::unique_ptr<Executor> plan(const backend::ProjectGroups& op, const Context& context) {
  return std::make_unique<ProjectGroupsExecutor>(op, context);
}
std::unique_ptr<Executor> plan(const backend::Mlp& op, const Context& context) {
  return std::make_unique<MlpExecutor>(op, context);
}
std::unique_ptr<HeadExecutor> plan(const backend::Head& op, const Context& context) {
  return std::make_unique<LogitsExecutor>(op, context);
}

}  // namespace lemma::cpu
