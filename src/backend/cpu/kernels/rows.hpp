// SPDX-License-Identifier: Apache-2.0
// Kernels over the elements of one row, written as plain loops that compilers turn into vectors of
// any width. Nothing here is fused or reordered, and sums run in a fixed number of lanes, so these
// kernels give the same bits on every instruction set. `Simd` only makes them local to one.
#pragma once

#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/kernels/unroll.hpp"

namespace lemma::cpu {

// Of exp(x): the limits of x, the constants of its reduction. 1.5 * 2^23: adding it rounds to an
// integer, ties to even. The high part of ln 2 has 9 bits.
inline constexpr float kExpLowest = -87.33654f, kExpHighest = 88.37626f;
inline constexpr float kExpLog2e = 1.44269504f, kExpRound = 12582912.f;
inline constexpr float kExpLn2High = 0.693359375f, kExpLn2Low = -2.12194440e-4f;

/// exp(x) to about 2 units in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial of
/// degree 6 for exp(r), and n put into the exponent. Below the smallest normal result: exactly 0;
/// above the largest finite one: the largest. NaN stays NaN.
template <typename Simd>
inline float exponential(float x) {
  float t = x > kExpHighest ? kExpHighest : x;
  t = t < kExpLowest ? kExpLowest : t;
  const float shifted = t * kExpLog2e + kExpRound;
  const float n = shifted - kExpRound;
  const float r = (t - n * kExpLn2High) - n * kExpLn2Low;
  float p = 1.f / 720.f;
  p = p * r + 1.f / 120.f;
  p = p * r + 1.f / 24.f;
  p = p * r + 1.f / 6.f;
  p = p * r + 0.5f;
  p = (p * r) * r + r + 1.f;
  // The low bits of `shifted` hold n; + 127 and moved up by 23 they are the float 2^n.
  const std::uint32_t bits = (__builtin_bit_cast(std::uint32_t, shifted) + 127u) << 23;
  const float result = p * __builtin_bit_cast(float, bits);
  return x < kExpLowest ? 0.f : result;
}

template <typename Simd>
inline float logistic(float x) {
  return 1.f / (1.f + exponential<Simd>(-x));
}

template <typename Simd>
void merge(float* out, float a, const float* part, float b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = out[i] * a + part[i] * b;
}

/// cap * tanh(x / cap) with tanh(y) = 1 - 2 / (exp(2 |y|) + 1) for large |y| and an odd polynomial
/// for small ones, where that form would cancel. Never a ratio of exponentials. The polynomial is
/// a Chebyshev fit of (tanh(y) / y - 1) / y^2 over |y| <= 0.626, off by 5e-8 at most.
template <typename Simd>
inline float soft_clip(float x, float cap) {
  const float y = x / cap;
  const float a = y < 0.f ? -y : y;
  const float s = y * y;
  float p = -6.09739e-3f;
  p = p * s + 2.099847e-2f;
  p = p * s - 5.385141e-2f;
  p = p * s + 1.3332775e-1f;
  p = p * s - 3.3333329e-1f;
  const float small = y + y * (s * p);
  const float magnitude = 1.f - 2.f / (exponential<Simd>(2.f * a) + 1.f);
  const float big = y < 0.f ? -magnitude : magnitude;
  return cap * (a < 0.625f ? small : big);
}

template <typename Simd>
void softcap(float* x, std::size_t n, float cap) {
  for (std::size_t i = 0; i < n; ++i) x[i] = soft_clip<Simd>(x[i], cap);
}

template <typename Simd>
double sum(const float* x, std::size_t n) {
  double lanes[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (std::size_t l = 0; l < 16; ++l) lanes[l] += static_cast<double>(x[i + l]);
  }
  for (std::size_t l = 0; i < n; ++i, ++l) lanes[l] += static_cast<double>(x[i]);
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

template <typename Simd>
double sum_of_squares(const float* x, std::size_t n, double centre) {
  double lanes[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (std::size_t l = 0; l < 16; ++l) {
      const double d = static_cast<double>(x[i + l]) - centre;
      lanes[l] += d * d;
    }
  }
  for (std::size_t l = 0; i < n; ++i, ++l) {
    const double d = static_cast<double>(x[i]) - centre;
    lanes[l] += d * d;
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

template <typename Simd>
void normalize(const float* x, std::size_t n, float centre, float root, const float* weight,
               const float* bias, float* out) {
  // A division and not a product with 1 / root: the reciprocal of a tiny root overflows.
  for (std::size_t i = 0; i < n; ++i) out[i] = (x[i] - centre) / root;
  if (weight != nullptr) {
    for (std::size_t i = 0; i < n; ++i) out[i] *= weight[i];
  }
  if (bias != nullptr) {
    for (std::size_t i = 0; i < n; ++i) out[i] += bias[i];
  }
}

template <typename Simd>
void silu(const float* g, const float* up, std::size_t n, float* out) {
  if (up == nullptr) {
    for (std::size_t i = 0; i < n; ++i) out[i] = g[i] * logistic<Simd>(g[i]);
  } else {
    for (std::size_t i = 0; i < n; ++i) out[i] = g[i] * logistic<Simd>(g[i]) * up[i];
  }
}

// Limits compare so that NaN passes through them.
template <typename Simd>
inline float at_most(float x, float limit) {
  return x > limit ? limit : x;
}
template <typename Simd>
inline float within(float x, float limit) {
  const float t = x > limit ? limit : x;
  return t < -limit ? -limit : t;
}

template <typename Simd>
void silu_limited(const float* g, const float* up, std::size_t n, float limit, bool after,
                  float* out) {
  if (after) {
    for (std::size_t i = 0; i < n; ++i) {
      out[i] = at_most<Simd>(g[i] * logistic<Simd>(g[i]), limit) * within<Simd>(up[i], limit);
    }
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      const float x = at_most<Simd>(g[i], limit);
      out[i] = x * logistic<Simd>(x) * within<Simd>(up[i], limit);
    }
  }
}

template <typename Simd>
void swiglu_oai(const float* g, const float* up, std::size_t n, float limit, float alpha,
                float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    const float x = at_most<Simd>(g[i], limit);
    out[i] = x * logistic<Simd>(alpha * x) * (within<Simd>(up[i], limit) + 1.f);
  }
}

template <typename Simd>
void situ(const float* g, const float* up, std::size_t n, float beta, float linear_beta,
          float* out) {
  if (linear_beta > 0.f) {
    for (std::size_t i = 0; i < n; ++i) {
      out[i] =
          soft_clip<Simd>(g[i], beta) * logistic<Simd>(g[i]) * soft_clip<Simd>(up[i], linear_beta);
    }
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      out[i] = soft_clip<Simd>(g[i], beta) * logistic<Simd>(g[i]) * up[i];
    }
  }
}

/// 0.5 (1 + tanh u) is the logistic function of 2 u, which cancels nowhere.
template <typename Simd>
inline float gelu(float g) {
  constexpr float kTwoRootTwoOverPi = 2.f * 0.7978845608f;
  return g * logistic<Simd>(kTwoRootTwoOverPi * (g + 0.044715f * g * g * g));
}

template <typename Simd>
void gelu_tanh(const float* g, const float* up, std::size_t n, float* out) {
  if (up == nullptr) {
    for (std::size_t i = 0; i < n; ++i) out[i] = gelu<Simd>(g[i]);
  } else {
    for (std::size_t i = 0; i < n; ++i) out[i] = gelu<Simd>(g[i]) * up[i];
  }
}

template <typename Simd>
void gate(const float* x, const float* g, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = x[i] * logistic<Simd>(g[i]);
}

template <typename Simd>
void rotate(const RotateJob& job) {
  const float sign = job.inverse ? -1.f : 1.f;
  const float* const u = job.x;
  const float* const v = job.x + job.distance;
  float* const turned_u = job.out;
  float* const turned_v = job.out + job.distance;
  for (std::size_t i = 0, at = 0; i < job.pairs; ++i, at += job.step) {
    const float c = job.cos[i], s = sign * job.sin[i];
    const float a = u[at], b = v[at];
    turned_u[at] = a * c - b * s;
    turned_v[at] = b * c + a * s;
  }
}

template <typename Simd>
void add(const float* a, const float* b, float b_scale, float out_scale, std::size_t n,
         float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = (a[i] + b[i] * b_scale) * out_scale;
}

/// The product of two vectors in 16 partial sums.
template <typename Simd>
float dot(const float* a, const float* b, std::size_t n) {
  float lanes[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (std::size_t l = 0; l < 16; ++l) lanes[l] += a[i + l] * b[i + l];
  }
  for (std::size_t l = 0; i < n; ++i, ++l) lanes[l] += a[i] * b[i];
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

/// One group of 32. The largest magnitude is found on the bits: for magnitudes these order like
/// the numbers, and NaN and infinity come out on top instead of getting lost in comparisons.
template <typename Simd>
void quantize_group(const float* x, std::int8_t* codes, float* scale, float* scaled_sum,
                    std::int32_t* sums) {
  constexpr std::uint32_t kInfinity = 0x7f800000u;
  constexpr float kTiny = 0x1p-100f;  // below it 127 / largest would overflow; the group is zero
  constexpr float kRound = 12582912.f;
  std::uint32_t top = 0;
  for (std::size_t i = 0; i < kGroup; ++i) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7fffffffu;
    top = bits > top ? bits : top;
  }
  const float peak = __builtin_bit_cast(float, top);
  const bool finite = top < kInfinity;
  const bool zero = !finite || peak < kTiny;
  const float inverse = zero ? 0.f : 127.f / peak;
  std::int32_t rounded[kGroup];
  for (std::size_t i = 0; i < kGroup; ++i) {
    const float shifted = (zero ? 0.f : x[i]) * inverse + kRound;
    rounded[i] =
        __builtin_bit_cast(std::int32_t, shifted) - __builtin_bit_cast(std::int32_t, kRound);
  }
  std::int32_t half[2] = {0, 0};
  for (std::size_t i = 0; i < kGroup / 2; ++i) {
    half[0] += rounded[i];
    half[1] += rounded[kGroup / 2 + i];
  }
  for (std::size_t i = 0; i < kGroup; ++i) codes[i] = static_cast<std::int8_t>(rounded[i]);
  *scale = finite ? (zero ? 0.f : peak / 127.f) : __builtin_nanf("");
  *scaled_sum = *scale * static_cast<float>(half[0] + half[1]);
  sums[0] = half[0] + half[1];
  sums[1] = half[0];
  sums[2] = static_cast<std::int32_t>((static_cast<std::uint32_t>(half[0]) & 0xffffu) |
                                      static_cast<std::uint32_t>(half[1]) << 16);
}

template <typename Simd>
void quantize(const float* x, std::size_t n, const QuantizedRows& out) {
  for (std::size_t g = 0; g < n / kGroup; ++g) {
    quantize_group<Simd>(x + g * kGroup, out.codes + g * kGroup, out.scales + g,
                         out.scaled_sums + g, out.sums + g * 3);
  }
}

}  // namespace lemma::cpu
