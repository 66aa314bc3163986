// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet (Yang et al., 2024): linear attention whose state is one matrix per value head,
// with one decay per head and token. This file owns the spec and one token's way from the
// projections to the gated heads; the projections before and after are other operations.
// Formulas: docs/contract.md, "Gated DeltaNet".
//
//   conv channels, in this order: [q: K x d_k][k: K x d_k][v: H x d_v]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "algorithm/attention/delta_rule.hpp"
#include "algorithm/attention/short_convolution.hpp"
#include "algorithm/slot.hpp"

namespace lemma::algorithm {

/// Which key head a value head reads.
enum class KeyHeads : std::uint8_t {
  kGrouped,  ///< value head h reads h / (H / K): neighbours share one
  kTiled,    ///< h % K: files whose value heads were reordered so
};

struct GatedDeltaNetSpec {
  std::uint32_t key_heads = 0;    ///< K, divides H
  std::uint32_t value_heads = 0;  ///< H
  std::uint32_t key_dim = 0, value_dim = 0;
  std::uint32_t kernel = 0;  ///< C of the convolution
  KeyHeads mapping = KeyHeads::kGrouped;
  float l2_eps = 1e-6f;    ///< inside the root of q's and k's norm, added to a sum
  float norm_eps = 1e-6f;  ///< of the output norm

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  std::uint32_t key_head(std::uint32_t h) const noexcept {
    return mapping == KeyHeads::kTiled ? h % key_heads : h / (value_heads / key_heads);
  }
  std::uint32_t channels() const noexcept {
    return 2 * key_heads * key_dim + value_heads * value_dim;
  }
  ShortConvolutionSpec convolution() const noexcept { return {channels(), kernel}; }
  DeltaShape shape() const noexcept { return {key_dim, value_dim, false}; }
  /// As recurrent_slots() says.
  Slots slots(DeltaForm form = DeltaForm::kSteps) const;
  friend bool operator==(const GatedDeltaNetSpec&, const GatedDeltaNetSpec&) = default;
};

struct GatedDeltaNetWeights {
  std::span<const float> convolution;  ///< [channels, C]
  std::span<const float> rate;         ///< [H]: exp(A_log), of either sign
  std::span<const float> dt_bias;      ///< [H]
  std::span<const float> norm;         ///< [d_v], shared by all heads
};

/// One token's projections.
struct GatedDeltaNetRow {
  std::span<const float> qkv;          ///< [channels], before the convolution
  std::span<const float> alpha, beta;  ///< [H]
  std::span<const float> gate;         ///< [H * d_v]
};

/// Takes in the token at kv index `position` and writes its gated heads [H * d_v]. `scratch` is
/// [channels()]. Returns false, changing nothing, if the position is not the state's next.
[[nodiscard]] bool gated_delta_net(const GatedDeltaNetSpec& spec,
                                   const GatedDeltaNetWeights& weights, std::uint32_t position,
                                   const GatedDeltaNetRow& row, RecurrentState& state,
                                   std::span<float> scratch, std::span<float> out) noexcept;

}  // namespace lemma::algorithm
