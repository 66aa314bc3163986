// SPDX-License-Identifier: Apache-2.0
// Kimi Delta Attention (Kimi Linear, 2025): the gated delta rule with a decay per channel of the
// key, bounded below or not, and a sigmoid output gate. Position enters through the recurrence
// alone. This file owns the spec and one token's way from the projections to the gated heads.
// Formulas: docs/contract.md, "KDA".
//
//   conv channels, in this order: [q: H x d][k: H x d][v: H x d]; files with three convolutions
//   give their weights one after the other, and the three histories are one block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "algorithm/attention/delta_rule.hpp"
#include "algorithm/attention/short_convolution.hpp"
#include "algorithm/slot.hpp"

namespace lemma::algorithm {

struct KdaSpec {
  std::uint32_t heads = 0;  ///< H
  std::uint32_t dim = 0;    ///< d of keys and values
  std::uint32_t kernel = 0;
  float lower_bound = 0.f;     ///< of the log decay, below 0; 0: none
  bool normalize_keys = true;  ///< q and k to length one before use
  float l2_eps = 1e-6f;        ///< inside the root of q's and k's norm, added to a sum
  float norm_eps = 1e-6f;      ///< of the output norm

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  std::uint32_t channels() const noexcept { return 3 * heads * dim; }
  ShortConvolutionSpec convolution() const noexcept { return {channels(), kernel}; }
  DeltaShape shape() const noexcept { return {dim, dim, true}; }
  std::size_t scratch_size() const noexcept { return std::size_t(channels()) + dim; }
  /// As recurrent_slots() says.
  Slots slots(DeltaForm form = DeltaForm::kSteps) const;
  friend bool operator==(const KdaSpec&, const KdaSpec&) = default;
};

struct KdaWeights {
  std::span<const float> convolution;  ///< [channels, C]
  std::span<const float> rate;         ///< [H]: exp(A_log), of either sign
  std::span<const float> dt_bias;      ///< [H * d]
  std::span<const float> norm;         ///< [d], shared by all heads
};

/// One token's projections.
struct KdaRow {
  std::span<const float> qkv;     ///< [channels], before the convolution
  std::span<const float> forget;  ///< [H * d], without its bias
  std::span<const float> beta;    ///< [H]
  std::span<const float> gate;    ///< [H * d]
};

/// The log decay of one channel: its raw forget projection, its bias and its head's rate.
float kda_log_decay(const KdaSpec& spec, float rate, float raw, float dt_bias) noexcept;

/// Takes in the token at kv index `position` and writes its gated heads [H * d]. `scratch` is
/// [scratch_size()]. Returns false, changing nothing, if the position is not the state's next.
[[nodiscard]] bool kda(const KdaSpec& spec, const KdaWeights& weights, std::uint32_t position,
                       const KdaRow& row, RecurrentState& state, std::span<float> scratch,
                       std::span<float> out) noexcept;

}  // namespace lemma::algorithm
