// SPDX-License-Identifier: Apache-2.0
#include "algorithm/ffn/latent_moe.hpp"

#include <cmath>

#include "algorithm/attention/require.hpp"
#include "algorithm/linear.hpp"
#include "algorithm/norm.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "latent mixture of experts";

void project(std::span<const float> matrix, std::span<const float> x,
             std::span<float> out) noexcept {
  LEMMA_CHECK(matrix.size() == x.size() * out.size());
  for (std::size_t o = 0; o < out.size(); ++o) {
    dot_rows(matrix.subspan(o * x.size(), x.size()), x.data(), x.size(), 1, &out[o], 1);
  }
}

}  // namespace

void LatentMoeSpec::validate() const {
  routing.validate();
  expert.validate();
  require(width > 0, kSpec, "width", "at least 1", width);
  require(std::isfinite(norm_eps) && norm_eps >= 0.f, kSpec, "norm eps", "a finite number >= 0",
          norm_eps);
  if (!shared) return;
  shared->validate();
  require(shared->width == width, kSpec, "shared width", "that of the hidden row", shared->width);
}

void combine_latent(const LatentMoeSpec& spec, const LatentMoeWeights& weights,
                    std::span<const float> x, std::span<const std::uint32_t> ids,
                    std::span<const float> route_weights, ExpertFunction expert,
                    std::span<float> scratch, std::span<float> out) noexcept {
  const std::size_t n = spec.latent();
  LEMMA_CHECK(x.size() == spec.width && out.size() == spec.width);
  LEMMA_CHECK(scratch.size() == spec.scratch_size());
  LEMMA_CHECK(weights.norm.size() == (spec.norm ? n : 0));
  const std::span<float> latent = scratch.first(n), combined = scratch.subspan(n, n);
  project(weights.down, x, latent);
  combine_experts({.routing = spec.routing, .expert = spec.expert, .shared = {}}, latent, ids,
                  route_weights, expert, scratch.last(2 * n), combined);
  if (spec.norm) {
    normalize({.kind = NormKind::kRms, .eps = spec.norm_eps}, combined, weights.norm, {}, combined);
  }
  project(weights.up, combined, out);
}

}  // namespace lemma::algorithm
