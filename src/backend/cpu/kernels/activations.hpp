// SPDX-License-Identifier: Apache-2.0
// Activations of older families, as plain loops like those of rows.hpp: the exact GELU and ReLU.
#pragma once

#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/kernels/rows.hpp"

namespace lemma::cpu {

/// x times the normal distribution's share below x, which is half of erfc(z) with z = |x| / sqrt(2)
/// or 1 less that. erfc(z) = t exp(p(t) - z^2), t = 1 / (1 + z / 2), p a Chebyshev fit over
/// z <= 9.4 that is off by 2.2e-7 at most; beyond, both are 0 to f32. Nothing cancels for x < 0.
template <typename Simd>
inline float gelu_exact(float x) {
  const float z = (x < 0.f ? -x : x) * 0.70710678f;
  const float t = 1.f / (1.f + 0.5f * z);
  float p = 0.0867878050f;
  p = p * t - 0.594973683f;
  p = p * t + 1.55739725f;
  p = p * t - 1.87579167f;
  p = p * t + 0.916793227f;
  p = p * t - 0.263145536f;
  p = p * t + 0.446010500f;
  p = p * t + 0.992063046f;
  p = p * t - 1.26514101f;
  const float tail = 0.5f * x * (t * exponential<Simd>(p - z * z));
  return x < 0.f ? tail : x - tail;
}

template <typename Simd>
void gelu_erf(const float* g, const float* up, std::size_t n, float* out) {
  if (up == nullptr) {
    for (std::size_t i = 0; i < n; ++i) out[i] = gelu_exact<Simd>(g[i]);
  } else {
    for (std::size_t i = 0; i < n; ++i) out[i] = gelu_exact<Simd>(g[i]) * up[i];
  }
}

/// NaN is not below 0 and stays.
template <typename Simd, bool Squared>
inline float rectified(float g) {
  const float x = g < 0.f ? 0.f : g;
  return Squared ? x * x : x;
}

template <typename Simd, bool Squared>
void relu(const float* g, const float* up, std::size_t n, float* out) {
  if (up == nullptr) {
    for (std::size_t i = 0; i < n; ++i) out[i] = rectified<Simd, Squared>(g[i]);
  } else {
    for (std::size_t i = 0; i < n; ++i) out[i] = rectified<Simd, Squared>(g[i]) * up[i];
  }
}

}  // namespace lemma::cpu
