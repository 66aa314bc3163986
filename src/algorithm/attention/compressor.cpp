// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/compressor.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithm/attention/require.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "compressor";

/// The parts of a frontier block, as in the header's picture.
struct Parts {
  Parts(const CompressorSpec& spec, std::span<float> block)
      : channels(spec.channels()), width(spec.width) {
    const std::size_t pending = std::size_t(spec.ratio) * channels;
    const std::size_t low = spec.overlap ? std::size_t(spec.ratio) * width : 0;
    values = block.data();
    gates = values + pending;
    low_values = gates + pending;
    low_gates = low_values + low;
  }
  std::size_t channels, width;
  float *values, *gates, *low_values, *low_gates;
};

/// One strided column of values and gates: `rows` tokens, one channel.
struct Column {
  const float *values, *gates;
  std::size_t stride, rows;
};

/// sum of softmax(gates) values over both columns, one softmax, the first column first.
float pool(const Column& first, const Column& second) noexcept {
  const Column* const columns[] = {&first, &second};
  float largest = -std::numeric_limits<float>::infinity();
  for (const Column* c : columns) {
    for (std::size_t s = 0; s < c->rows; ++s) largest = std::max(largest, c->gates[s * c->stride]);
  }
  float mass = 0.f;
  for (const Column* c : columns) {
    for (std::size_t s = 0; s < c->rows; ++s) mass += std::exp(c->gates[s * c->stride] - largest);
  }
  float sum = 0.f;
  for (const Column* c : columns) {
    for (std::size_t s = 0; s < c->rows; ++s) {
      sum += std::exp(c->gates[s * c->stride] - largest) / mass * c->values[s * c->stride];
    }
  }
  return sum;
}

/// Pools the window that just filled up; `before` says whether a window precedes it.
void close_window(const CompressorSpec& spec, const Parts& parts, bool before,
                  std::span<float> pooled) noexcept {
  const std::size_t high = parts.channels - parts.width;  // where the window's own channels begin
  for (std::size_t d = 0; d < parts.width; ++d) {
    const Column previous{parts.low_values + d, parts.low_gates + d, parts.width,
                          spec.overlap && before ? spec.ratio : 0};
    const Column own{parts.values + high + d, parts.gates + high + d, parts.channels, spec.ratio};
    pooled[d] = pool(previous, own);
  }
  if (!spec.overlap) return;
  for (std::size_t s = 0; s < spec.ratio; ++s) {
    std::copy_n(parts.values + s * parts.channels, parts.width, parts.low_values + s * parts.width);
    std::copy_n(parts.gates + s * parts.channels, parts.width, parts.low_gates + s * parts.width);
  }
}

}  // namespace

void CompressorSpec::validate() const {
  require(ratio >= 2, kSpec, "ratio", "at least 2", ratio);
  require(width > 0 && width < 0x80000000u && is_row(std::uint64_t(ratio) * 6, width), kSpec,
          "width", "at least 1 and a frontier below 2^32 elements", width);
}

std::size_t CompressorSpec::frontier_size() const noexcept {
  return std::size_t(ratio) * (2 * std::size_t(channels()) + (overlap ? 2 * width : 0));
}

Slots CompressorSpec::slots() const {
  Slot frontier;
  frontier.kind = SlotKind::kFixed;
  frontier.width = std::uint32_t(frontier_size());
  return {row_slot(width, 0, ratio), frontier};
}

CompressStep compress(const CompressorSpec& spec, std::span<const float> bias,
                      std::uint32_t position, std::span<const float> value,
                      std::span<const float> gate, Frontier& frontier,
                      std::span<float> pooled) noexcept {
  const std::size_t channels = spec.channels();
  LEMMA_CHECK(value.size() == channels && gate.size() == channels && pooled.size() == spec.width);
  LEMMA_CHECK(bias.size() == spec.ratio * channels);
  LEMMA_CHECK(frontier.block.size() == spec.frontier_size());
  if (position != frontier.next) return CompressStep::kRefused;

  const Parts parts(spec, frontier.block);
  const std::size_t place = position % spec.ratio;
  for (std::size_t c = 0; c < channels; ++c) {
    parts.values[place * channels + c] = value[c];
    parts.gates[place * channels + c] = gate[c] + bias[place * channels + c];
  }
  ++frontier.next;
  if (place + 1 < spec.ratio) return CompressStep::kPending;
  close_window(spec, parts, position >= spec.ratio, pooled);
  return CompressStep::kClosed;
}

}  // namespace lemma::algorithm
