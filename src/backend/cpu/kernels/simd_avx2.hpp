// SPDX-License-Identifier: Apache-2.0
// Vectors of AVX2 with FMA and F16C: 8 lanes, so a panel is two vectors wide. What the members of
// Simd mean is written in kernels_scalar.cpp. For the files of kernels that are compiled for AVX2
// and what has more: each has a Simd of its own, since the namespace has no name.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/product.hpp"

namespace lemma::cpu {
namespace {
namespace avx2 {

struct Simd {
  static constexpr std::size_t kLanes = 8;
  // Sixteen registers: 4 x 2 sums of f32 products leave room for weights and a value.
  static constexpr std::size_t kProductRows = 4;
  static constexpr std::size_t kProductColumns4 = 2;
  static constexpr std::size_t kFloatRows = 3;  // three rows of two chains of two vectors
  // Four rows of two i32 sums; the f32 sums, touched once in 32 columns, may live on the stack.
  static constexpr std::size_t kInt8Rows = 4;
  static constexpr std::size_t kExpandFrom = 48;
  using F = __m256;
  using I = __m256i;

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* x) { return _mm256_loadu_ps(x); }
  static F load(const F16* x) { return load_f16(reinterpret_cast<const std::byte*>(x)); }
  static F load(const BF16* x) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static void store(float* out, F x) { _mm256_storeu_ps(out, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }

  /// Fours within the halves first, then the halves.
  static void transpose(F (&x)[8]) {
    F t[8];
    LEMMA_UNROLL
    for (int i = 0; i < 8; i += 4) {
      const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(x[i], x[i + 1]));
      const __m256d b = _mm256_castps_pd(_mm256_unpackhi_ps(x[i], x[i + 1]));
      const __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(x[i + 2], x[i + 3]));
      const __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(x[i + 2], x[i + 3]));
      t[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
      t[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
      t[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
      t[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
    }
    LEMMA_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
      x[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
  }

  static F load_f16(const std::byte* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static F load_f32(const std::byte* at) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
  }
  static F load_u8(const std::byte* at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes(at)));
  }
  static F load_s8(const std::byte* at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes(at)));
  }

  static F load_e8m0(const std::byte* at) {
    const I doubled = _mm256_max_epi32(_mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes(at)), 23),
                                       _mm256_set1_epi32(0x00400000));
    const I lower = _mm256_sub_epi32(doubled, _mm256_set1_epi32(0x00800000));
    return _mm256_castsi256_ps(_mm256_max_epi32(lower, _mm256_srli_epi32(doubled, 1)));
  }
  static F load_e4m3(const std::byte* at) {
    const I moved = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes(at)), 20);
    return _mm256_mul_ps(_mm256_castsi256_ps(moved), _mm256_set1_ps(0x1p119f));
  }

  static I set_int(std::int32_t x) { return _mm256_set1_epi32(x); }
  static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
  static I splat4(const std::int8_t* a) {
    std::int32_t quad;
    __builtin_memcpy(&quad, a, 4);
    return _mm256_set1_epi32(quad);
  }
  static I codes(const std::byte* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }
  static void store_codes(std::byte* to, I x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
  }
  static I signed_codes(const std::byte* at) { return codes(at); }
  template <int Count, int From, int To = 0>
  static I bits(I x) {
    const I mask = _mm256_set1_epi8(static_cast<char>(((1 << Count) - 1) << To));
    if constexpr (From > To) x = _mm256_srli_epi16(x, From - To);
    if constexpr (From < To) x = _mm256_slli_epi16(x, To - From);
    return _mm256_and_si256(x, mask);
  }
  static I bit_or(I a, I b) { return _mm256_or_si256(a, b); }
  template <int Count, int From, int To>
  static I or_bits(I into, I x) {
    return bit_or(into, bits<Count, From, To>(x));
  }

  template <int Count, int From, int To = 0>
  static I halves(I x) {
    const I mask = _mm256_set1_epi16(static_cast<short>(((1 << Count) - 1) << To));
    if constexpr (From > To) x = _mm256_srli_epi16(x, From - To);
    if constexpr (From < To) x = _mm256_slli_epi16(x, To - From);
    return _mm256_and_si256(x, mask);
  }
  template <int Count, int From, int To>
  static I or_halves(I into, I x) {
    return bit_or(into, halves<Count, From, To>(x));
  }
  static I shift_halves(I x, int count) { return _mm256_srl_epi16(x, _mm_cvtsi32_si128(count)); }
  static I less_four_times(I a, I b) { return _mm256_sub_epi16(a, _mm256_slli_epi16(b, 2)); }
  template <int Down, int Up>
  static I join(I low, I high) {
    high = _mm256_slli_epi32(high, Up);
    if constexpr (Down > 0) low = _mm256_srli_epi32(low, Down);
    return _mm256_blend_epi16(low, high, 0xaa);
  }
  using Table = __m256i;
  static Table table(const std::byte* at) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static I lookup(Table t, I x) { return _mm256_shuffle_epi8(t, x); }

  // For project_loaded.hpp.
  static I unpack_low(I a, I b) { return _mm256_unpacklo_epi8(a, b); }
  static I unpack_high(I a, I b) { return _mm256_unpackhi_epi8(a, b); }
  /// The same 8 bytes four times.
  static I octet(const std::int8_t* a) {
    return _mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(a)));
  }
  /// Two vectors of four words of 64 bits: at(o, i) gives the numbers of both for place o.
  template <typename At>
  static void two_of_four_octets(const std::uint64_t* words, const At& at, I (&to)[2]) {
    __m128d low[2], high[2];
    two_of_two_octets<0>(words, at, low);
    two_of_two_octets<2>(words, at, high);
    for (int i = 0; i < 2; ++i) {
      to[i] = _mm256_castpd_si256(_mm256_set_m128d(high[i], low[i]));
    }
  }
  /// The same of eight of 32 bits.
  template <typename At>
  static void two_of_eight_words(const std::uint32_t* words, const At& at, I (&to)[2]) {
    __m128i low[2], high[2];
    two_of_four_words<0>(words, at, low);
    two_of_four_words<4>(words, at, high);
    for (int i = 0; i < 2; ++i) {
      to[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(low[i]), high[i], 1);
    }
  }
  /// For an octet of each half's words 0 and 1 (Byte < 8) or 2 and 3: -1 in the bytes whose bit is
  /// set in byte Byte % 8 of the word, else 1.
  template <int Byte>
  static I octets_set(I words) {
    const __m128i lanes = _mm_set_epi64x(0x0404040404040404, 0);
    const __m128i from = _mm_add_epi8(lanes, _mm_set1_epi8(Byte));
    const I bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
    const I spread = _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(from));
    const I set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
    return _mm256_or_si256(set, _mm256_set1_epi8(1));
  }
  /// Bytes of `x` negated where those of `sign`, none of which is 0, are below 0.
  static I with_sign(I x, I sign) { return _mm256_sign_epi8(x, sign); }
  /// In each half the lanes of `a` with even (odd) numbers, then those of `b`.
  static I even_lanes(I a, I b) {
    return _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
  }
  static I odd_lanes(I a, I b) {
    return _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd));
  }
  /// Sums of pairs of numbers of 32 bits: in each half those of `a`, then those of `b`.
  static I add_neighbours(I a, I b) { return _mm256_hadd_epi32(a, b); }

  template <int Byte>
  static I spread(I x) {
    const __m128i lanes = _mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    const __m128i from = _mm_add_epi8(lanes, _mm_set1_epi8(Byte));
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(from));
  }
  /// The lower byte of a product of 16 bits depends on the factors' lower bytes alone.
  static I times(I x, I factor) {
    const I low = _mm256_set1_epi16(0xff);
    const I even = _mm256_and_si256(_mm256_mullo_epi16(x, factor), low);
    const I odd = _mm256_mullo_epi16(_mm256_srli_epi16(x, 8), factor);
    return _mm256_or_si256(even, _mm256_slli_epi16(odd, 8));
  }
  template <int From>
  static I less_than(I x) {
    return _mm256_sub_epi8(_mm256_set1_epi8(From), x);
  }
  static I as_signed(I x) { return x; }

  static constexpr int kSignedOffset = 0;
  static constexpr bool kDotsAreOne = false;
  /// Products are added in pairs with saturation at 16 bits: 2 * 127 * 127 = 32258 stays below.
  static I dot_unsigned(I sum, I w, I a) { return add_widened(sum, pair_products(w, a)); }
  static constexpr bool kWideBytes = false;
  static I dot_bytes(I sum, I w, I a) { return dot_unsigned(sum, w, a); }
  /// |w| times a with w's sign. |-128| is 128 as an unsigned byte, and 2 * 128 * 127 = 32512 fits.
  static I dot_signed(I sum, I w, I a) {
    return dot_unsigned(sum, _mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
  }
  /// Per 16 bits: the sum of two products of unsigned w with a; sums of such; and per lane, sum +
  /// both. What these hold must fit 16 bits.
  static I pair_products(I w, I a) { return _mm256_maddubs_epi16(w, a); }
  static I add_pairs(I a, I b) { return in_order(_mm256_add_epi16(a, b)); }
  static I add_widened(I sum, I pairs) {
    return in_order(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
  }
  static I dot_pairs(I a, I b) { return _mm256_madd_epi16(a, b); }

 private:
  /// Keeps the compiler from adding whole numbers in another order, for which it would hold all
  /// products of a group at once, and there are sixteen registers.
  static I in_order(I sum) {
    asm("" : "+x"(sum));
    return sum;
  }
  template <std::size_t First, typename At>
  static void two_of_four_words(const std::uint32_t* words, const At& at, __m128i (&to)[2]) {
    std::size_t i[2];
    at(First, i);
    const auto word = [&](int k) { return static_cast<int>(words[i[k]]); };
    to[0] = _mm_cvtsi32_si128(word(0));
    to[1] = _mm_cvtsi32_si128(word(1));
    at(First + 1, i);
    to[0] = _mm_insert_epi32(to[0], word(0), 1);
    to[1] = _mm_insert_epi32(to[1], word(1), 1);
    at(First + 2, i);
    to[0] = _mm_insert_epi32(to[0], word(0), 2);
    to[1] = _mm_insert_epi32(to[1], word(1), 2);
    at(First + 3, i);
    to[0] = _mm_insert_epi32(to[0], word(0), 3);
    to[1] = _mm_insert_epi32(to[1], word(1), 3);
  }
  template <std::size_t First, typename At>
  static void two_of_two_octets(const std::uint64_t* words, const At& at, __m128d (&to)[2]) {
    std::size_t i[2];
    const auto word = [&](int k) { return reinterpret_cast<const double*>(words + i[k]); };
    at(First, i);
    to[0] = _mm_load_sd(word(0));
    to[1] = _mm_load_sd(word(1));
    at(First + 1, i);
    to[0] = _mm_loadh_pd(to[0], word(0));
    to[1] = _mm_loadh_pd(to[1], word(1));
  }
  static __m128i bytes(const std::byte* at) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
  }
};

}  // namespace avx2
}  // namespace
}  // namespace lemma::cpu
