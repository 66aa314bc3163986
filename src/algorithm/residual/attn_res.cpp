// SPDX-License-Identifier: Apache-2.0
#include "algorithm/residual/attn_res.hpp"

#include <algorithm>
#include <cmath>

#include "algorithm/attention/require.hpp"
#include "algorithm/linear.hpp"
#include "algorithm/norm.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "attention residual";

}  // namespace

void AttnResSpec::validate() const {
  require(block_size > 0, kSpec, "block size", "at least 1", block_size);
  require(width > 0, kSpec, "width", "at least 1", width);
  require(std::isfinite(eps) && eps >= 0.f, kSpec, "eps", "a finite number >= 0", eps);
}

void attn_res_mix(const AttnResSpec& spec, std::span<const float> current,
                  std::span<const float> blocks, std::span<const float> norm,
                  std::span<const float> proj, std::span<float> scratch,
                  std::span<float> out) noexcept {
  const std::size_t width = spec.width, n = blocks.size() / width;
  LEMMA_CHECK(blocks.size() == n * width && scratch.size() == width + n + 1);
  LEMMA_CHECK(current.size() == width && norm.size() == width && proj.size() == width);
  LEMMA_CHECK(out.size() == width);
  const std::span<float> normed = scratch.first(width), weights = scratch.subspan(width);
  const auto candidate = [&](std::size_t i) {
    return i < n ? blocks.subspan(i * width, width) : current;
  };
  for (std::size_t i = 0; i <= n; ++i) {
    normalize({.kind = NormKind::kRms, .eps = spec.eps}, candidate(i), norm, {}, normed);
    dot_rows(proj, normed.data(), width, 1, &weights[i], 1);
  }
  float largest = weights[0];
  for (const float score : weights) largest = std::max(largest, score);
  float mass = 0.f;
  for (float& weight : weights) {
    weight = std::exp(weight - largest);
    mass += weight;
  }
  for (float& weight : weights) weight /= mass;
  for (std::size_t d = 0; d < width; ++d) {
    float sum = 0.f;
    for (std::size_t i = 0; i <= n; ++i) sum += weights[i] * candidate(i)[d];
    out[d] = sum;
  }
}

}  // namespace lemma::algorithm
