// SPDX-License-Identifier: Apache-2.0
// Normalisation: root-mean-square and layer norm of one vector, with or without weight and bias.
// A stored weight is always the factor itself; checkpoints that store w of (1 + w) say so with a
// view, so nothing here ever adds one. Formulas: docs/contract.md, "Norms".
#pragma once

#include <cstdint>
#include <span>

namespace lemma::algorithm {

enum class NormKind : std::uint8_t {
  kRms,    ///< x / sqrt(mean(x^2) + eps) * w
  kLayer,  ///< (x - mean) / sqrt(variance + eps) * w + b, biased variance
};

struct NormSpec {
  NormKind kind = NormKind::kRms;
  float eps = 1e-5f;

  /// Throws kUnsupported naming the field when eps is not finite or is negative.
  void validate() const;
  friend bool operator==(const NormSpec&, const NormSpec&) = default;
};

/// Normalises `x` [n] into `out` [n] (may be the same memory). `weight` [n] or empty, `bias` [n] or
/// empty. Sums run in ascending order in f64 and are rounded once, which makes the mean exact
/// enough for any width; the rest is f32.
void normalize(const NormSpec& spec, std::span<const float> x, std::span<const float> weight,
               std::span<const float> bias, std::span<float> out) noexcept;

/// Divides by sqrt(sum(x^2) + eps): a sum, not a mean. Zero stays zero.
void l2_normalize(std::span<const float> x, float eps, std::span<float> out) noexcept;

}  // namespace lemma::algorithm
