// SPDX-License-Identifier: Apache-2.0
// Vectors of AVX-512 with F, BW, VL, DQ and VNNI: 16 lanes, so a panel is one vector wide. What the
// members of Simd mean is written in kernels_scalar.cpp. For the files of kernels that are compiled
// for AVX-512 and what has more: each has a Simd of its own, since the namespace has no name.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/product.hpp"

namespace lemma::cpu {
namespace {
namespace avx512 {

struct Simd {
  static constexpr std::size_t kLanes = 16;
  // 8 rows: eight f32 and eight i32 sums, one vector of weights and scratch in 32 registers.
  static constexpr std::size_t kProductRows = 8;
  static constexpr std::size_t kProductColumns4 = 4;
  static constexpr std::size_t kFloatRows = 6;
  static constexpr std::size_t kInt8Rows = 8;
  static constexpr std::size_t kExpandFrom = 40;
  using F = __m512;
  using I = __m512i;

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* x) { return _mm512_loadu_ps(x); }
  static F load(const F16* x) { return load_f16(reinterpret_cast<const std::byte*>(x)); }
  static F load(const BF16* x) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static void store(float* out, F x) { _mm512_storeu_ps(out, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }

  /// Fours within the quarters first, then the quarters.
  static void transpose(F (&x)[16]) {
    F t[16];
    LEMMA_UNROLL
    for (int i = 0; i < 16; i += 4) {
      const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(x[i], x[i + 1]));
      const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(x[i], x[i + 1]));
      const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(x[i + 2], x[i + 3]));
      const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(x[i + 2], x[i + 3]));
      t[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
      t[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
      t[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
      t[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    LEMMA_UNROLL
    for (int i = 0; i < 4; ++i) {  // quarter q of t[i + 4 j]: column 4 q + i of rows 4 j ...
      const F a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
      const F b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
      const F c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
      const F d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
      x[i] = _mm512_shuffle_f32x4(a, c, 0x88);
      x[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
      x[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
      x[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
  }

  /// Turns 32 elements of 16 rows, 16 bits each, as pairs of 32 bits: half the shuffles. Quarters
  /// of four rows come together in a vector by loads, which other ports do.
  template <typename Element>
  static void transpose_pairs(const Element* rows, std::size_t stride, float* out) {
    LEMMA_UNROLL
    for (std::size_t q = 0; q < 4; ++q) {
      __m512i t[4];
      LEMMA_UNROLL
      for (std::size_t r = 0; r < 4; ++r) {  // quarter j: pairs 4 q ... of row 4 j + r
        const auto quarter = [&](std::size_t j) {
          return _mm_loadu_si128(
              reinterpret_cast<const __m128i*>(rows + (4 * j + r) * stride + 8 * q));
        };
        t[r] = _mm512_broadcast_i32x4(quarter(0));
        t[r] = _mm512_mask_broadcast_i32x4(t[r], 0x00f0, quarter(1));
        t[r] = _mm512_mask_broadcast_i32x4(t[r], 0x0f00, quarter(2));
        t[r] = _mm512_mask_broadcast_i32x4(t[r], 0xf000, quarter(3));
      }
      const __m512i a = _mm512_unpacklo_epi32(t[0], t[1]), b = _mm512_unpackhi_epi32(t[0], t[1]);
      const __m512i c = _mm512_unpacklo_epi32(t[2], t[3]), d = _mm512_unpackhi_epi32(t[2], t[3]);
      float* const to = out + 8 * q * kPanelRows;
      store_pair(Element{}, _mm512_unpacklo_epi64(a, c), to);
      store_pair(Element{}, _mm512_unpackhi_epi64(a, c), to + 2 * kPanelRows);
      store_pair(Element{}, _mm512_unpacklo_epi64(b, d), to + 4 * kPanelRows);
      store_pair(Element{}, _mm512_unpackhi_epi64(b, d), to + 6 * kPanelRows);
    }
  }

  static F load_f16(const std::byte* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  static F load_f32(const std::byte* at) { return _mm512_loadu_ps(at); }
  static F load_u8(const std::byte* at) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes(at)));
  }
  static F load_s8(const std::byte* at) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes(at)));
  }

  static F load_e8m0(const std::byte* at) {
    const I doubled = _mm512_max_epi32(_mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes(at)), 23),
                                       _mm512_set1_epi32(0x00400000));
    const I lower = _mm512_sub_epi32(doubled, _mm512_set1_epi32(0x00800000));
    return _mm512_castsi512_ps(_mm512_max_epi32(lower, _mm512_srli_epi32(doubled, 1)));
  }
  static F load_e4m3(const std::byte* at) {
    const I moved = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes(at)), 20);
    return _mm512_mul_ps(_mm512_castsi512_ps(moved), _mm512_set1_ps(0x1p119f));
  }

  static I set_int(std::int32_t x) { return _mm512_set1_epi32(x); }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
  static I splat4(const std::int8_t* a) {
    std::int32_t four;
    __builtin_memcpy(&four, a, 4);
    return _mm512_set1_epi32(four);
  }
  static I codes(const std::byte* at) { return _mm512_loadu_si512(at); }
  static void store_codes(std::byte* to, I x) { _mm512_storeu_si512(to, x); }
  /// VNNI multiplies unsigned by signed: flipping the top bit turns w into w + 128, and every dot
  /// is then 128 times the sum of the activations too large.
  static I signed_codes(const std::byte* at) { return as_signed(codes(at)); }
  template <int Count, int From, int To = 0>
  static I bits(I x) {
    const I mask = _mm512_set1_epi8(static_cast<char>(((1 << Count) - 1) << To));
    if constexpr (From > To) x = _mm512_srli_epi16(x, From - To);
    if constexpr (From < To) x = _mm512_slli_epi16(x, To - From);
    return _mm512_and_si512(x, mask);
  }
  static I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  template <int Count, int From, int To>
  static I or_bits(I into, I x) {
    const I mask = _mm512_set1_epi8(static_cast<char>(((1 << Count) - 1) << To));
    if constexpr (From > To) x = _mm512_srli_epi16(x, From - To);
    if constexpr (From < To) x = _mm512_slli_epi16(x, To - From);
    return or_masked(into, x, mask);
  }

  template <int Count, int From, int To = 0>
  static I halves(I x) {
    const I mask = _mm512_set1_epi16(static_cast<short>(((1 << Count) - 1) << To));
    if constexpr (From > To) x = _mm512_srli_epi16(x, From - To);
    if constexpr (From < To) x = _mm512_slli_epi16(x, To - From);
    if constexpr (From + Count == 16 && To == 0) return x;
    return _mm512_and_si512(x, mask);
  }
  template <int Count, int From, int To>
  static I or_halves(I into, I x) {
    const I mask = _mm512_set1_epi16(static_cast<short>(((1 << Count) - 1) << To));
    if constexpr (From > To) x = _mm512_srli_epi16(x, From - To);
    if constexpr (From < To) x = _mm512_slli_epi16(x, To - From);
    return or_masked(into, x, mask);
  }
  static I shift_halves(I x, int count) { return _mm512_srl_epi16(x, _mm_cvtsi32_si128(count)); }
  static I less_four_times(I a, I b) { return _mm512_sub_epi16(a, _mm512_slli_epi16(b, 2)); }
  template <int Down, int Up>
  static I join(I low, I high) {
    if constexpr (Down > 0) low = _mm512_srli_epi32(low, Down);
    return or_masked(_mm512_slli_epi32(high, Up), low, _mm512_set1_epi32(0xffff));
  }
  using Table = __m512i;
  /// The top bits are flipped here, once, instead of in every vector of codes.
  static Table table(const std::byte* at) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm512_broadcast_i32x4(_mm_xor_si128(values, _mm_set1_epi8(-128)));
  }
  static I lookup(Table t, I x) { return _mm512_shuffle_epi8(t, x); }
  /// Words of two bytes by indices of a byte each and, of 512, a ninth bit, bit 0 of the bytes of
  /// `ninth`: the words' lower and upper bytes. Bytes with even and odd numbers are looked up
  /// apart.
  template <std::size_t Count>
  [[gnu::always_inline]] static void lookup_words(const std::uint16_t* words, I index, I ninth,
                                                  I& low, I& high) {
    const I bytes = _mm512_set1_epi16(0xff);
    I even = _mm512_and_si512(index, bytes), odd = _mm512_srli_epi16(index, 8);
    if constexpr (Count > 256) {
      even = _mm512_or_si512(even, _mm512_slli_epi16(ninth, 8));
      odd = _mm512_or_si512(odd, _mm512_andnot_si512(bytes, ninth));
    }
    const I x = lookup_words<Count>(words, even), y = lookup_words<Count>(words, odd);
    low = _mm512_ternarylogic_epi32(bytes, x, _mm512_slli_epi16(y, 8), 0xca);  // bytes ? x : y
    high = _mm512_ternarylogic_epi32(bytes, _mm512_srli_epi16(x, 8), y, 0xca);
  }

  template <int Byte>
  static I spread(I x) {
    const __m128i lanes = _mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    const __m128i from = _mm_add_epi8(lanes, _mm_set1_epi8(Byte));
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(from));
  }
  /// The lower byte of a product of 16 bits depends on the factors' lower bytes alone.
  static I times(I x, I factor) {
    const I low = _mm512_set1_epi16(0xff);
    const I even = _mm512_and_si512(_mm512_mullo_epi16(x, factor), low);
    const I odd = _mm512_mullo_epi16(_mm512_srli_epi16(x, 8), factor);
    return _mm512_or_si512(even, _mm512_slli_epi16(odd, 8));
  }
  template <int From>
  static I less_than(I x) {
    return _mm512_sub_epi8(_mm512_set1_epi8(From), x);
  }
  static I as_signed(I x) { return _mm512_xor_si512(x, _mm512_set1_epi8(-128)); }

  static constexpr int kSignedOffset = 128;
  static constexpr bool kDotsAreOne = true;
  static I dot_unsigned(I sum, I w, I a) { return _mm512_dpbusd_epi32(sum, w, a); }
  static I dot_signed(I sum, I w, I a) { return _mm512_dpbusd_epi32(sum, w, a); }
  static constexpr bool kWideBytes = true;
  static I dot_bytes(I sum, I w, I a) { return _mm512_dpbusd_epi32(sum, w, a); }
  static I dot_pairs(I a, I b) { return _mm512_madd_epi16(a, b); }

 private:
  /// Words by indices of 16 bits, 64 of them at a time.
  template <std::size_t Count>
  [[gnu::always_inline]] static I lookup_words(const std::uint16_t* words, I index) {
    if constexpr (Count == 64) {
      return _mm512_permutex2var_epi16(_mm512_load_si512(words), index,
                                       _mm512_load_si512(words + 32));
    } else {
      const __mmask32 upper = _mm512_test_epi16_mask(index, _mm512_set1_epi16(Count / 2));
      return _mm512_mask_blend_epi16(upper, lookup_words<Count / 2>(words, index),
                                     lookup_words<Count / 2>(words + Count / 2, index));
    }
  }
  static I or_masked(I into, I x, I mask) {
    return _mm512_ternarylogic_epi32(into, x, mask, 0xf8);  // into | (x & mask)
  }
  /// The low and the high halves of 16 pairs, as f32.
  static void store_pair(BF16, __m512i x, float* out) {
    _mm512_storeu_si512(out, _mm512_slli_epi32(x, 16));
    _mm512_storeu_si512(out + kPanelRows, _mm512_and_si512(x, _mm512_set1_epi32(-0x10000)));
  }
  static void store_pair(F16, __m512i x, float* out) {
    store(out, widen(_mm512_slli_epi32(x, 16)));
    store(out + kPanelRows, widen(x));
  }
  /// Finite f16 in the high halves: with their exponent in f32's place they are 2^112 too small.
  static F widen(__m512i x) {
    const __m512i kept = _mm512_set1_epi32(static_cast<int>(0x8fffe000u));
    const __m512i moved = _mm512_and_si512(_mm512_srai_epi32(x, 3), kept);
    return _mm512_mul_ps(_mm512_castsi512_ps(moved), _mm512_set1_ps(0x1p112f));
  }
  static __m128i bytes(const std::byte* at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  }
};

}  // namespace avx512
}  // namespace
}  // namespace lemma::cpu
