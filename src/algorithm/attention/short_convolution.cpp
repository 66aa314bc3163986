// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/short_convolution.hpp"

#include "algorithm/attention/require.hpp"
#include "algorithm/ffn/dense_mlp.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "short convolution";

}  // namespace

void ShortConvolutionSpec::validate() const {
  require(channels > 0, kSpec, "channels", "at least 1", channels);
  require(kernel > 0 && is_row(channels, kernel), kSpec, "kernel",
          "at least 1 and a history below 2^32 elements", kernel);
}

Slots ShortConvolutionSpec::slots() const {
  if (kernel == 1) return {};
  Slot history;
  history.kind = SlotKind::kFixed;
  history.width = std::uint32_t(history_size());
  return {history};
}

void convolve(const ShortConvolutionSpec& spec, std::span<const float> weight,
              std::span<const float> row, std::span<float> history, std::span<float> out) noexcept {
  const std::size_t channels = spec.channels, past = spec.kernel - 1;
  LEMMA_CHECK(weight.size() == channels * spec.kernel && history.size() == spec.history_size());
  LEMMA_CHECK(row.size() == channels && out.size() == channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const float* const w = weight.data() + c * spec.kernel;
    float* const old = history.data() + c;
    const float newest = row[c];
    float sum = 0.f;
    for (std::size_t i = 0; i < past; ++i) sum += w[i] * old[i * channels];
    sum += w[past] * newest;
    for (std::size_t i = 0; i + 1 < past; ++i) old[i * channels] = old[(i + 1) * channels];
    if (past > 0) old[(past - 1) * channels] = newest;
    out[c] = sum * sigmoid(sum);
  }
}

}  // namespace lemma::algorithm
