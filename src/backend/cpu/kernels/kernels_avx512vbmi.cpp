// SPDX-License-Identifier: Apache-2.0
// Kernels of the formats with a grid for AVX-512 with VBMI, which looks bytes up among 64 or 128.
// They take the place of the same kernels of AVX-512, and give the same bits.
#include "backend/cpu/kernels/make_table.hpp"
#include "backend/cpu/kernels/simd_avx512.hpp"

namespace lemma::cpu {
namespace {
namespace avx512vbmi {

struct Simd : avx512::Simd {
  static constexpr std::size_t kExpandFrom = 48;

  /// 64 signed values, prepared for dot_signed by lookup64; an index is six bits of a byte.
  using Table64 = __m512i;
  static Table64 table64(const std::int8_t* values) {
    return _mm512_xor_si512(_mm512_load_si512(values), _mm512_set1_epi8(-128));
  }
  static I lookup64(Table64 table, I index) { return _mm512_permutexvar_epi8(index, table); }
  /// Bytes among 256 by index, or among 512 where the mask has the ninth bit.
  static I lookup256(const std::uint8_t* bytes, I index) {
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), lookup128(bytes, index),
                                  lookup128(bytes + 128, index));
  }
  static I lookup512(const std::uint8_t* bytes, I index, __mmask64 ninth) {
    return _mm512_mask_blend_epi8(ninth, lookup256(bytes, index), lookup256(bytes + 256, index));
  }
  static __mmask64 bytes_with(I x, std::size_t bit) {
    return _mm512_test_epi8_mask(x, _mm512_set1_epi8(static_cast<char>(1u << bit)));
  }
  static I flag(I words, std::size_t bit, std::uint32_t mask) {
    static constexpr std::uint32_t kBits[32] = {
        1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
        1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
        1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
        1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};
    const I tested = _mm512_set1_epi32(static_cast<int>(kBits[bit]));
    return _mm512_maskz_set1_epi32(_mm512_test_epi32_mask(words, tested),
                                   static_cast<int>(mask * 0x01010101u));
  }
  /// Whole vectors shifted: what crosses bytes is for the caller to mask.
  template <int Count>
  static I shift_right(I x) {
    if constexpr (Count == 0) return x;
    return _mm512_srli_epi16(x, Count);
  }
  template <int Count>
  static I shift_left(I x) {
    if constexpr (Count == 0) return x;
    return _mm512_slli_epi16(x, Count);
  }
  /// Bits 0 .. 3 of every byte of `low`, the others of `rest`.
  static I low_nibbles(I low, I rest) { return select(_mm512_set1_epi8(0x0f), low, rest); }
  /// The top bits of the nibbles of `top`, the others of `rest`.
  static I top_bits(I rest, I top) {
    return select(_mm512_set1_epi8(static_cast<char>(0x88)), top, rest);
  }

 private:
  static I lookup128(const std::uint8_t* bytes, I index) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(bytes), index, _mm512_load_si512(bytes + 64));
  }
  static I select(I mask, I a, I b) { return _mm512_ternarylogic_epi32(mask, a, b, 0xca); }
};

constexpr KernelTable grids() {
  KernelTable table{};
  put_grids<Simd>(table);
  return table;
}

}  // namespace avx512vbmi
}  // namespace

constinit const KernelTable kAvx512VbmiKernels = avx512vbmi::grids();

}  // namespace lemma::cpu
