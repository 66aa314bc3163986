// SPDX-License-Identifier: Apache-2.0
// The dense MLP: gate, up and activation, and then down.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/activation.hpp"
#include "backend/cpu/executor.hpp"
#include "backend/cpu/linear.hpp"
#include "backend/cpu/rounding.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// Memory of an MLP, shared by the layers. Shape: hidden width, and whether hidden rows are int8 or
/// whole numbers.
struct MlpScratch {
  MlpScratch(const Context& context, std::span<const std::size_t> shape) {
    const std::size_t rows = context.max_rows;
    threads.resize(static_cast<std::size_t>(context.pool.threads()));
    for (auto& scratch : threads) scratch.resize(2 * rows * Linear::kChunk);
    products.resize(2 * std::min(rows, Linear::kFewRows) * shape[0]);
    if (shape[1] != 0) {
      quantized = QuantizedBuffer(context.kernels, rows, shape[0]);
    } else {
      hidden = base::AlignedBuffer::uninitialized(rows * shape[0] * sizeof(float));
      if (shape[2] != 0) quantized = QuantizedBuffer(context.kernels, rows, 0, shape[0]);
    }
  }
  std::size_t bytes() const noexcept {
    return (threads.size() * threads.front().size() + products.size()) * sizeof(float) +
           quantized.bytes() + hidden.size();
  }

  std::vector<std::vector<float>> threads;  ///< [2, max_rows, 64] of each
  std::vector<float> products;              ///< [2, few rows, F]: up's and gate's
  QuantizedBuffer quantized;                ///< [max_rows, F]: hidden rows in int8, and
  base::AlignedBuffer hidden;  ///< otherwise in f32, and entered ones in `quantized` too
};

/// gate, up and activation are one phase: a chunk of hidden elements is finished, and rounded to
/// int8 if the down projection reads that, while it is in the cache. The down projection is the
/// next; rows that it reads in whole numbers are rounded in between, since 128 columns share a
/// scale. For a few rows memory is what counts, and the longer it is read in order the better:
/// there all chunks of up come before all of gate, and who makes a chunk's second product finishes
/// it.
class MlpExecutor final : public PhasedExecutor {
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
    scratch_ = &context.shared<MlpScratch>(
        {up_.outputs(), down_.wants_int8() ? 1u : 0u, down_.wants_whole() ? 1u : 0u});
    made_ = Meetings(up_.chunks());
  }

  std::size_t begin(Context& context, Phases& phases) noexcept override {
    in_ = rounding_.begin(context);
    hidden_ = {reinterpret_cast<const float*>(scratch_->hidden.data()), {}, context.runs()};
    whole_ = down_.wants_whole() && context.enters();
    if (down_.wants_int8() || whole_) hidden_.quantized = scratch_->quantized.rows(down_.cols());
    std::size_t count = 0;
    if (rounding_.pending()) phases[count++] = rounding_.phase(context);
    few_ = context.rows() <= Linear::kFewRows;
    phases[count++] = {up_.chunks() * (few_ && gated_ ? 2 : 1), 2 * up_.work(context.rows())};
    if (whole_) phases[count++] = {context.rows(), context.rows() * down_.cols()};
    phases[count++] = {down_.chunks(), down_.work(context.rows())};
    return count;
  }

  void run_item(Context& context, std::size_t phase, std::size_t item,
                int thread) noexcept override {
    if (!rounding_.pending()) ++phase;
    if (phase == 0) return rounding_.run_item(context, item);
    if (phase == 1 && few_) return widen_few(context, item);
    if (phase == 1) {
      return widen(context, item, scratch_->threads[static_cast<std::size_t>(thread)].data());
    }
    if (phase == 2 && whole_) {
      return context.kernels.round_whole(hidden_.x + item * down_.cols(), down_.cols(),
                                         scratch_->quantized.rows(down_.cols(), item).whole);
    }
    down_.run(context.kernels, hidden_, item, context.arena.data(op_.out) + item * Linear::kChunk,
              op_.out.width);
  }

  backend::Tensor reads_quantized() const noexcept override { return rounding_.reads_quantized(); }
  std::string implementation() const override { return implementations({&gate_, &up_, &down_}); }
  std::string format() const override { return formats({&gate_, &up_, &down_}); }

 private:
  /// A chunk of the hidden rows. `scratch` holds [2, rows, 64].
  void widen(Context& context, std::size_t chunk, float* scratch) noexcept {
    float* const gates = scratch + context.rows() * Linear::kChunk;
    up_.run(context.kernels, in_, chunk, scratch, Linear::kChunk);
    if (gated_) gate_.run(context.kernels, in_, chunk, gates, Linear::kChunk);
    hide(context, chunk, scratch, gated_ ? gates : nullptr);
  }

  /// A chunk of up or, after all of those, of gate, and where both are there of the hidden rows.
  void widen_few(Context& context, std::size_t item) noexcept {
    const std::size_t chunks = up_.chunks(), chunk = item % chunks, width = up_.outputs();
    const std::size_t first = chunk * Linear::kChunk, count = up_.chunk_outputs(chunk);
    float* const up = scratch_->products.data();
    float* const gate = up + context.rows() * width;
    if (item < chunks) {
      up_.run(context.kernels, in_, chunk, up + first, width);
    } else {
      gate_.run(context.kernels, in_, chunk, gate + first, width);
    }
    if (gated_ && !made_.last(chunk, 1, 2)) return;
    for (std::size_t r = 0; r < context.rows(); ++r) {
      float* const x = up + r * width + first;
      activate(context.kernels, op_.spec.activation, gated_ ? gate + r * width + first : x,
               gated_ ? x : nullptr, count, x);
      keep(context, r, chunk, x);
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
  bool few_ = false, whole_ = false;
  Meetings made_;  ///< of up and gate, by chunk
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Mlp& op, const Context& context) {
  return std::make_unique<MlpExecutor>(op, context);
}

}  // namespace lemma::cpu
