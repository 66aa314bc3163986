// SPDX-License-Identifier: Apache-2.0
// The dense feed-forward block and its activations: out = W_down act(W_gate x, W_up x), or
// W_down act(W_up x) without a gate. Formulas: docs/contract.md, "Feed-forward".
#pragma once

#include <cstdint>
#include <span>

namespace lemma::algorithm {

enum class Activation : std::uint8_t {
  kSilu,         ///< g * sigmoid(g); `limit` > 0 clamps g above and u on both sides first
  kGeluTanh,     ///< 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3)))
  kGeluErf,      ///< 0.5 g (1 + erf(g / sqrt 2))
  kRelu,         ///< max(g, 0)
  kReluSquared,  ///< max(g, 0)^2
  kSwigluOai,    ///< g' sigmoid(alpha g') (u' + 1), g' = min(g, limit), u' = clamp(u, +-limit)
  kSitu,         ///< beta tanh(g/beta) sigmoid(g) u', u' = linear_beta tanh(u/linear_beta) if > 0
};

struct ActivationSpec {
  Activation kind = Activation::kSilu;
  float limit = 0.f;                    ///< kSilu: 0 none; kSwigluOai: usually 7
  float alpha = 1.702f;                 ///< kSwigluOai
  float beta = 4.f, linear_beta = 0.f;  ///< kSitu
  bool limit_after = false;             ///< kSilu: the limit caps g * sigmoid(g), not g

  void validate() const;  ///< throws kUnsupported naming the field
  friend bool operator==(const ActivationSpec&, const ActivationSpec&) = default;
};

struct MlpSpec {
  ActivationSpec activation;
  bool gated = true;
  std::uint32_t width = 0;   ///< D
  std::uint32_t hidden = 0;  ///< F

  void validate() const;  ///< throws kUnsupported naming the field
  friend bool operator==(const MlpSpec&, const MlpSpec&) = default;
};

float sigmoid(float x) noexcept;   ///< never overflows
float softplus(float x) noexcept;  ///< log(1 + exp(x)), never overflows

/// The activation of one element: `g` from the gate (or the only) projection, `u` from the up
/// projection, 1 where the block has no gate. kSwigluOai and kSitu need a gate.
float activate(const ActivationSpec& spec, float g, float u) noexcept;

/// out[i] = activate(gate[i], up[i]); an empty `up` means ungated. `out` may be `gate`.
void activate(const ActivationSpec& spec, std::span<const float> gate, std::span<const float> up,
              std::span<float> out) noexcept;

}  // namespace lemma::algorithm
