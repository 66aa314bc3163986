// SPDX-License-Identifier: Apache-2.0
// The latent mixture of experts (Nemotron-H, Kimi K3): routed by the whole hidden row, experts work
// in a narrower space that one projection leads into and another out of, with or without a norm
// before the way out. What is shared reads the hidden row and is added behind.
// Formulas: docs/contract.md, "Mixture of experts".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "algorithm/ffn/topk_moe.hpp"

namespace lemma::algorithm {

struct LatentMoeSpec {
  RoutingSpec routing;
  MlpSpec expert;           ///< its width is the latent's
  std::uint32_t width = 0;  ///< D of the hidden row
  bool norm = false;        ///< an rms of the combined latent; makes the block not linear in
                            ///< the weights, so partial sums must be joined before it
  float norm_eps = 1e-6f;
  std::optional<MlpSpec> shared;  ///< width D

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  std::uint32_t latent() const noexcept { return expert.width; }
  std::size_t scratch_size() const noexcept { return 4 * std::size_t(latent()); }
  friend bool operator==(const LatentMoeSpec&, const LatentMoeSpec&) = default;
};

struct LatentMoeWeights {
  std::span<const float> down;  ///< [latent, D]: into the latent space
  std::span<const float> norm;  ///< [latent], or empty without a norm
  std::span<const float> up;    ///< [D, latent]: out of it
};

/// out [D] = up rms(sum over the chosen experts, ascending id, of weight * expert(down x)), for one
/// row. `scratch` is [scratch_size()].
void combine_latent(const LatentMoeSpec& spec, const LatentMoeWeights& weights,
                    std::span<const float> x, std::span<const std::uint32_t> ids,
                    std::span<const float> route_weights, ExpertFunction expert,
                    std::span<float> scratch, std::span<float> out) noexcept;

}  // namespace lemma::algorithm
