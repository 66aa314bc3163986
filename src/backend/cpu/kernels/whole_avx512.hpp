// SPDX-License-Identifier: Apache-2.0
// What products (project_whole.hpp) and attention (attention_whole.hpp) in whole numbers of 13 bits
// share on AVX-512: sums of pairs of 16 bits, and the largest magnitude of a row.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace lemma::cpu {
namespace {
namespace whole {

using F = __m512;
using I = __m512i;

/// Sums of 16 outputs. As lanes of 32 bits, since GCC keeps a sum that it sees as two types of
/// vectors twice, and then has registers for half as many.
using Sums = std::int32_t __attribute__((vector_size(64)));

inline Sums add(Sums sums, I a, I b) {
  return reinterpret_cast<Sums>(_mm512_dpwssd_epi32(reinterpret_cast<I>(sums), a, b));
}
inline F to_float(Sums sums) {
  return _mm512_cvtepi32_ps(reinterpret_cast<I>(sums));
}

/// The lower n lanes of 16; n may be more.
inline __mmask16 first_lanes(std::size_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1u);
}

/// Magnitudes as whole numbers, which order like them, NaN above infinity.
inline I magnitude(F x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}
/// The largest magnitude of n elements.
inline std::int32_t largest_of(const float* x, std::size_t n) {
  I most = _mm512_setzero_si512();
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) most = _mm512_max_epi32(most, magnitude(_mm512_loadu_ps(x + i)));
  if (i < n) {
    most = _mm512_max_epi32(most, magnitude(_mm512_maskz_loadu_ps(first_lanes(n - i), x + i)));
  }
  return _mm512_reduce_max_epi32(most);
}

/// 16 numbers of bf16.
inline F widen_bf16(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

}  // namespace whole
}  // namespace
}  // namespace lemma::cpu
