// SPDX-License-Identifier: Apache-2.0
#include "limits.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace lemma::cpu {
namespace {

constexpr std::size_t kChains = 12;  // latency 4 or 5, at most 2 a cycle

// An empty asm makes the compiler believe that a register changed, so it folds nothing.
__attribute__((target("avx512f"))) std::size_t f32_avx512(std::size_t steps) {
  __m512 sums[kChains];
  for (auto& sum : sums) sum = _mm512_set1_ps(1.f);
  __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  for (std::size_t i = 0; i < steps; ++i) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 16
    for (auto& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
  }
  for (auto& sum : sums) asm volatile("" ::"v"(sum));
  return steps * kChains * 16;
}

__attribute__((target("avx512f,avx512vnni"))) std::size_t int8_avx512(std::size_t steps) {
  __m512i sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  for (std::size_t i = 0; i < steps; ++i) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 16
    for (auto& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
  }
  for (auto& sum : sums) asm volatile("" ::"v"(sum));
  return steps * kChains * 64;
}

__attribute__((target("avx512f,avx512vnni"))) std::size_t int16_avx512(std::size_t steps) {
  __m512i sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi16(3), b = _mm512_set1_epi16(1);
  for (std::size_t i = 0; i < steps; ++i) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 16
    for (auto& sum : sums) sum = _mm512_dpwssd_epi32(sum, a, b);
  }
  for (auto& sum : sums) asm volatile("" ::"v"(sum));
  return steps * kChains * 32;
}

__attribute__((target("avx2,fma"))) std::size_t f32_avx2(std::size_t steps) {
  __m256 sums[kChains];
  for (auto& sum : sums) sum = _mm256_set1_ps(1.f);
  __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  for (std::size_t i = 0; i < steps; ++i) {
    asm volatile("" : "+x"(a), "+x"(b));
#pragma GCC unroll 16
    for (auto& sum : sums) sum = _mm256_fmadd_ps(a, b, sum);
  }
  for (auto& sum : sums) asm volatile("" ::"x"(sum));
  return steps * kChains * 8;
}

__attribute__((target("avx2"))) std::size_t int8_avx2(std::size_t steps) {
  __m256i sums[kChains];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(1);
  const __m256i ones = _mm256_set1_epi16(1);
  for (std::size_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      asm volatile("" : "+x"(a), "+x"(b));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
  for (auto& sum : sums) asm volatile("" ::"x"(sum));
  return steps * kChains * 32;
}

}  // namespace

std::size_t run_f32_limit(base::Isa isa, std::size_t steps) {
  if (isa == base::Isa::kAvx512) return f32_avx512(steps);
  return isa == base::Isa::kAvx2 ? f32_avx2(steps) : 0;
}
std::size_t run_int16_limit(base::Isa isa, std::size_t steps) {
  return isa == base::Isa::kAvx512 ? int16_avx512(steps) : 0;
}
std::size_t run_int8_limit(base::Isa isa, std::size_t steps) {
  if (isa == base::Isa::kAvx512) return int8_avx512(steps);
  return isa == base::Isa::kAvx2 ? int8_avx2(steps) : 0;
}

}  // namespace lemma::cpu

#else

std::size_t lemma::cpu::run_f32_limit(base::Isa, std::size_t) {
  return 0;
}
std::size_t lemma::cpu::run_int16_limit(base::Isa, std::size_t) {
  return 0;
}
std::size_t lemma::cpu::run_int8_limit(base::Isa, std::size_t) {
  return 0;
}

#endif
