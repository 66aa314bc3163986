// SPDX-License-Identifier: Apache-2.0
// Compression: a window of tokens becomes one row. Windows lie at absolute multiples of the ratio
// and each is pooled by one thread from its tokens, those of the step where they lie and earlier
// ones from the committed frontier; so windows do not wait for one another. Afterwards the next
// frontier is written, with what the definition would have left in it token by token.
#include <algorithm>
#include <cmath>
#include <vector>

#include "algorithm/attention/compressed_sparse.hpp"
#include "algorithm/norm.hpp"
#include "algorithm/row_formats.hpp"
#include "backend/cpu/executor.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// The parts of a frontier block; compressor.hpp draws it.
template <typename Float>
struct Frontier {
  Frontier(const algorithm::CompressorSpec& spec, std::span<Float> block)
      : channels(spec.channels()), width(spec.width) {
    if (block.empty()) return;  // nothing is committed yet
    values = block.data();
    gates = values + spec.ratio * channels;
    low_values = gates + spec.ratio * channels;
    low_gates = low_values + (spec.overlap ? spec.ratio * width : 0);
  }
  std::size_t channels, width;
  Float *values = nullptr, *gates = nullptr;  ///< [ratio, channels] of the open window
  Float *low_values = nullptr,
        *low_gates = nullptr;  ///< [ratio, width] of the closed one before it
};

class CompressExecutor final : public Executor {
 public:
  CompressExecutor(const backend::Compress& op, const Context& context)
      : op_(op), spec_(op.spec), bias_(context.vector(op.bias)), norm_(context.vector(op.norm)) {
    LEMMA_CHECK(op.value.width == spec_.channels() && op.gate.width == spec_.channels());
    LEMMA_CHECK(bias_.size() == std::size_t{spec_.ratio} * spec_.channels());
    if (op.entry) {
      LEMMA_CHECK(norm_.size() == spec_.width);
      rope_.emplace_back(op.entry->rope);
    }
    const std::size_t pairs = rope_.empty() ? 0 : rope_.front().inv_freq().size();
    for (int t = 0; t < context.pool.threads(); ++t) {
      Scratch& s = scratch_.emplace_back();
      s.gates.resize(std::size_t{spec_.ratio} * spec_.width * (spec_.overlap ? 2 : 1));
      s.values_at.resize(std::size_t{spec_.ratio} * 2);
      s.gates_at.resize(std::size_t{spec_.ratio} * 2);
      s.pooled.resize(spec_.width);
      s.cos.resize(pairs);
      s.sin.resize(pairs);
    }
  }

  void run(Context& context) noexcept override {
    context.each(context.rows(), context.rows() * 4 * op_.value.width,
                 [&](std::size_t r, int thread) {
                   check(context, r);
                   const std::uint32_t position = context.position_of(r);
                   if ((position + 1) % spec_.ratio != 0) return;
                   close(context, r, position, scratch_[static_cast<std::size_t>(thread)]);
                 });
    context.settle(op_.value);
    for (const backend::Segment& segment : context.step().segments) {
      if (segment.rows > 0) advance(context, segment);
    }
  }

  std::size_t scratch_bytes() const noexcept override {
    const Scratch& s = scratch_.front();
    return scratch_.size() * (sizeof(float) * (s.gates.size() + s.pooled.size()) +
                              sizeof(float*) * 2 * s.values_at.size());
  }

 private:
  /// One thread's memory.
  struct Scratch {
    std::vector<float> gates;  ///< [tokens, width]: gates of the step's tokens with their bias
    std::vector<const float*> values_at, gates_at;  ///< by token
    std::vector<float> pooled, cos, sin;
  };

  void check(Context& context, std::size_t row) const noexcept {
    for (const backend::Tensor tensor : {op_.value, op_.gate}) {
      const double squares =
          context.kernels.sum_of_squares(context.arena.row(tensor, row), tensor.width, 0.0);
      if (!std::isfinite(squares)) context.mark(row);
    }
  }

  const float* bias(std::uint32_t position, std::size_t channel) const noexcept {
    return bias_.data() + position % spec_.ratio * spec_.channels() + channel;
  }

  /// Pools the window that ends at `position` and stores its row.
  void close(Context& context, std::size_t row, std::uint32_t position, Scratch& s) noexcept {
    const std::uint32_t index = position / spec_.ratio;
    const std::size_t high = spec_.channels() - spec_.width;
    std::size_t tokens = 0;
    if (spec_.overlap && index > 0) tokens = gather(context, row, index - 1, index, 0, tokens, s);
    tokens = gather(context, row, index, index, high, tokens, s);
    context.kernels.pool(s.values_at.data(), s.gates_at.data(), tokens, spec_.width,
                         s.pooled.data());
    if (op_.entry) finish(index, s);
    const state::SlotPlace& place =
        context.state.layout().slots()[static_cast<std::size_t>(op_.rows)];
    const std::uint32_t at = algorithm::row_position(index, spec_.ratio);
    if (!algorithm::encode_row(place.format, place.slot.group, s.pooled,
                               context.state.row(op_.rows, *context.segment_of(row).sequence, at),
                               place.slot.tail))
      context.mark(row);
  }

  /// Appends the tokens of `window`, from channel `begin` on, to those that make up row `closing`.
  /// `row` is the row of the closing window's last token.
  std::size_t gather(Context& context, std::size_t row, std::uint32_t window, std::uint32_t closing,
                     std::size_t begin, std::size_t tokens, Scratch& s) noexcept {
    const backend::Segment& segment = context.segment_of(row);
    const std::span<const float> block = context.state.block(op_.frontier, *segment.sequence);
    const Frontier<const float> frontier(spec_, block);
    // A window before the one that was open when the step began is in the low rows.
    const bool is_low = window < segment.past / spec_.ratio;
    for (std::uint32_t t = 0; t < spec_.ratio; ++t, ++tokens) {
      const std::uint32_t position = window * spec_.ratio + t;
      if (position >= segment.past) {
        const std::size_t own = row + position - ((closing + 1) * spec_.ratio - 1);
        const float* const gate = context.arena.row(op_.gate, own) + begin;
        const float* const added = bias(position, begin);
        float* const to = s.gates.data() + tokens * spec_.width;
        for (std::size_t c = 0; c < spec_.width; ++c) to[c] = gate[c] + added[c];
        s.values_at[tokens] = context.arena.row(op_.value, own) + begin;
        s.gates_at[tokens] = to;
      } else if (is_low) {
        s.values_at[tokens] = frontier.low_values + t * spec_.width;
        s.gates_at[tokens] = frontier.low_gates + t * spec_.width;
      } else {
        s.values_at[tokens] = frontier.values + t * frontier.channels + begin;
        s.gates_at[tokens] = frontier.gates + t * frontier.channels + begin;
      }
    }
    return tokens;
  }

  /// A pooled row becomes an entry: normed, and turned by its first token's position.
  void finish(std::uint32_t index, Scratch& s) const noexcept {
    const algorithm::CompressedSparseSpec& entry = *op_.entry;
    algorithm::normalize({algorithm::NormKind::kRms, entry.norm_eps}, s.pooled, norm_, {},
                         s.pooled);
    const auto position = static_cast<std::int32_t>(algorithm::row_position(index, spec_.ratio));
    rope_.front().angles({position, position, position}, s.cos, s.sin);
    algorithm::rotate(entry.rope, s.cos, s.sin, false, s.pooled);
  }

  /// Writes the next frontier, which begins as a copy of the committed one.
  void advance(Context& context, const backend::Segment& segment) noexcept {
    const std::span<float> block = context.state.next_block(op_.frontier, *segment.sequence);
    const Frontier<float> next(spec_, block);
    const std::uint32_t end = segment.past + segment.rows, ratio = spec_.ratio;
    if (spec_.overlap && end / ratio > segment.past / ratio) {
      // The last closed window, of which earlier tokens are still in the open one's place.
      for (std::uint32_t t = 0; t < ratio; ++t) {
        const std::uint32_t position = (end / ratio - 1) * ratio + t;
        float* const values = next.low_values + t * spec_.width;
        float* const gates = next.low_gates + t * spec_.width;
        if (position >= segment.past) {
          take(context, segment, position, spec_.width, values, gates);
        } else {
          std::copy_n(next.values + t * next.channels, spec_.width, values);
          std::copy_n(next.gates + t * next.channels, spec_.width, gates);
        }
      }
    }
    const std::uint32_t first = std::max(segment.past, end > ratio ? end - ratio : 0);
    for (std::uint32_t position = first; position < end; ++position) {
      const std::size_t at = position % ratio * next.channels;
      take(context, segment, position, next.channels, next.values + at, next.gates + at);
    }
  }

  /// The first `n` channels of a token of the step.
  void take(const Context& context, const backend::Segment& segment, std::uint32_t position,
            std::size_t n, float* values, float* gates) const noexcept {
    const std::size_t row = segment.first_row + position - segment.past;
    std::copy_n(context.arena.row(op_.value, row), n, values);
    const float* const gate = context.arena.row(op_.gate, row);
    const float* const added = bias(position, 0);
    for (std::size_t c = 0; c < n; ++c) gates[c] = gate[c] + added[c];
  }

  backend::Compress op_;
  algorithm::CompressorSpec spec_;
  std::span<const float> bias_, norm_;
  std::vector<algorithm::RopeTable> rope_;  ///< one, where rows become entries
  std::vector<Scratch> scratch_;            ///< by thread
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Compress& op, const Context& context) {
  return std::make_unique<CompressExecutor>(op, context);
}

}  // namespace lemma::cpu
