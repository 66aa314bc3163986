// SPDX-License-Identifier: Apache-2.0
// Readers of the packed panels of Q2_K and Q3_K, whose scales are whole numbers that hold for 16
// columns (int8_tile.hpp says what is added in which order).
//
// Four groups of 32 columns, a *four*, share vectors: bits at one place of four vectors are the
// codes of the same 16 columns. So codes are multiplied where they lie, by a mask alone, and a dot
// product comes out 2^place too large. That is taken back where the dot products of a group's
// halves become a pair of 16 bits, which meets the pair of their scales in one multiplication.
//
// All of this is exact; it gives the bits that codes taken out one by one would give.
#pragma once

#include "backend/cpu/kernels/project_panels.hpp"

namespace lemma::cpu {

#define LEMMA_FORCE_INLINE [[gnu::always_inline]] inline

/// Where a four is, half of a block of 256 columns: scales, what the whole block has of them,
/// codes.
struct Four {
  const std::byte *scales, *block_scales, *codes;
  int half;
};

/// What both share. `Panel` has fours, and of them quad Q (of 8) of group K, at place<K>(half), and
/// scales and minimums of a group as pairs of 16 bits.
template <typename Simd, typename Panel>
struct FoldedGroups {
  using F = typename Simd::F;
  using I = typename Simd::I;
  static constexpr std::size_t kVectors = kPanelRows / Simd::kLanes;
  static constexpr bool kFolded = true;

  /// Eight groups from `begin` on: adds to a the scaled products, to b the minimums' part.
  template <std::size_t R>
  LEMMA_FORCE_INLINE void add_block(const std::byte* streamed, std::size_t begin,
                                    const TileRows<Simd, R>& rows, F (&a)[R][1][kVectors],
                                    F (&b)[R][1][kVectors]) const {
    for (std::size_t g = begin; g < begin + kBlockGroups; g += 4) {
      const Four four = static_cast<const Panel&>(*this).four(g);
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        if (v == 0) prefetch<0>(streamed, g);
        add_group<0>(four, g, v, rows, a, b);
        if (v == 0) prefetch<1>(streamed, g);
        add_group<1>(four, g, v, rows, a, b);
        if (v == 0) prefetch<2>(streamed, g);
        add_group<2>(four, g, v, rows, a, b);
        if (v == 0) prefetch<3>(streamed, g);
        add_group<3>(four, g, v, rows, a, b);
      }
    }
  }

 private:
  /// Asks, before group K, for its share of what lies the prefetch distance after the four at group
  /// g. (All at once were read a tenth more slowly; and without the assembly, which does nothing,
  /// the compiler keeps a pointer for every line.)
  template <std::size_t K>
  LEMMA_FORCE_INLINE static void prefetch(const std::byte* streamed, std::size_t g) {
    if (streamed == nullptr) return;
    const std::byte* at = streamed + g * Panel::kSweep + kPrefetchBytes;
    __asm__("" : "+r"(at));
    constexpr std::size_t kLines = (4 * Panel::kSweep + 63) / 64;
    LEMMA_UNROLL
    for (std::size_t i = kLines * K / 4; i < kLines * (K + 1) / 4; ++i) {
      __builtin_prefetch(at + i * 64);
    }
  }

  /// Group K of the four that begins with group `first`.
  template <std::size_t K, std::size_t R>
  LEMMA_FORCE_INLINE static void add_group(const Four& four, std::size_t first, std::size_t v,
                                           const TileRows<Simd, R>& rows, F (&a)[R][1][kVectors],
                                           F (&b)[R][1][kVectors]) {
    I low[R], high[R];
    multiply<K, 0>(four, first, v, rows, low);
    multiply<K, 1>(four, first, v, rows, high);
    const I scales = Panel::template scales_of<K>(four, v);
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      constexpr int kDown = Panel::template place<K>(0), kUp = 16 - Panel::template place<K>(1);
      const std::size_t g = first + K;
      const I sums = Simd::splat4(reinterpret_cast<const std::int8_t*>(rows.sums[r] + g * 3 + 2));
      const I pair = Panel::centred(Simd::template join<kDown, kUp>(low[r], high[r]), sums);
      const F scale = Simd::set(rows.scales[r][g]);
      a[r][0][v] = Simd::fma(Simd::to_float(Simd::dot_pairs(pair, scales)), scale, a[r][0][v]);
      if constexpr (Panel::kMinimum) {
        const I minimums = Panel::template minimums_of<K>(four, v);
        b[r][0][v] = Simd::fma(Simd::to_float(Simd::dot_pairs(minimums, sums)), scale, b[r][0][v]);
      }
    }
  }

  /// The products of one half of group K, 2^place<K>(Half) too large.
  template <std::size_t K, std::size_t Half, std::size_t R>
  LEMMA_FORCE_INLINE static void multiply(const Four& four, std::size_t first, std::size_t v,
                                          const TileRows<Simd, R>& rows, I (&dots)[R]) {
    const I w[4] = {Panel::template codes_of<K, Half * 4>(four, v),
                    Panel::template codes_of<K, Half * 4 + 1>(four, v),
                    Panel::template codes_of<K, Half * 4 + 2>(four, v),
                    Panel::template codes_of<K, Half * 4 + 3>(four, v)};
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      const std::int8_t* const x = rows.codes[r] + (first + K) * kGroup + Half * 16;
      dots[r] = Simd::dot_bytes(Simd::set_int(0), w[0], Simd::splat4(x));
      dots[r] = Simd::dot_bytes(dots[r], w[1], Simd::splat4(x + 4));
      dots[r] = Simd::dot_bytes(dots[r], w[2], Simd::splat4(x + 8));
      dots[r] = Simd::dot_bytes(dots[r], w[3], Simd::splat4(x + 12));
    }
  }
};

/// Vector `i` from `at` on, of which v is a part.
template <typename Simd>
LEMMA_FORCE_INLINE typename Simd::I vector_at(const std::byte* at, std::size_t i, std::size_t v) {
  return Simd::codes(at + i * kVectorBytes + v * 4 * Simd::kLanes);
}

/// Q2_K, per 256 columns: [16] f16 d, [16] f16 dmin; [4][16] words with a scale (low) and a minimum
/// in each byte, of the first half of two groups in bytes 0 and 1, of the second in 2 and 3; [2][8]
/// vectors of codes: bits 2 k, 2 k + 1 of vector q hold quad q of group k of a four.
template <typename Simd>
struct PanelQ2_K : FoldedGroups<Simd, PanelQ2_K<Simd>> {
  using I = typename Simd::I;
  using F = typename Simd::F;
  static constexpr std::size_t kParts = 2;
  static constexpr int kOffset = 0, kMost = 3, kFoldedMost = 3 * 15;
  static constexpr bool kMinimum = true, kSigned = false;
  static constexpr std::size_t kScales = 64, kCodes = kScales + 256, kBlock = kCodes + 1024;
  static constexpr std::size_t kSweep = kBlock / 8;
  const std::byte* panel;

  PanelQ2_K(const std::byte* bytes, std::size_t) : panel(bytes) {}

  Four four(std::size_t g) const {
    const std::size_t half = g % 8 / 4;
    return {block(g) + kScales + half * 128, nullptr, block(g) + kCodes + half * 512, int(half)};
  }
  template <std::size_t K>
  static constexpr int place(std::size_t) {
    return K == 3 && !Simd::kWideBytes ? 4 : 2 * K;
  }
  template <std::size_t K, std::size_t Q>
  LEMMA_FORCE_INLINE static I codes_of(const Four& four, std::size_t v) {
    return Simd::template bits<2, 2 * K, place<K>(0)>(vector_at<Simd>(four.codes, Q, v));
  }
  template <std::size_t K>
  LEMMA_FORCE_INLINE static I scales_of(const Four& four, std::size_t v) {
    return Simd::template halves<4, K % 2 * 8>(vector_at<Simd>(four.scales, K / 2, v));
  }
  template <std::size_t K>
  LEMMA_FORCE_INLINE static I minimums_of(const Four& four, std::size_t v) {
    return Simd::template halves<4, K % 2 * 8 + 4>(vector_at<Simd>(four.scales, K / 2, v));
  }
  static I centred(I pair, I) { return pair; }

  template <std::size_t Q>
  I folded(std::size_t g, std::size_t v) const {
    const I codes = Simd::shift_halves(vector_at<Simd>(four(g).codes, Q, v), int(g % 4 * 2));
    const I factors = Simd::template spread<Q / 4 * 2>(Simd::template halves<4, 0>(both(g, v)));
    return Simd::times(Simd::template bits<2, 0>(codes), factors);
  }
  I minimums(std::size_t g, std::size_t v) const { return Simd::template halves<4, 4>(both(g, v)); }
  F block_scale(std::size_t g, std::size_t v) const {
    return Simd::load_f16(block(g) + v * 2 * Simd::kLanes);
  }
  F folded_scale(std::size_t g, std::size_t v) const { return block_scale(g, v); }
  F block_minimum(std::size_t g, std::size_t v) const {
    return Simd::load_f16(block(g) + 32 + v * 2 * Simd::kLanes);
  }

 private:
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  /// Scale and minimum of a group in the lower bytes of its pair.
  I both(std::size_t g, std::size_t v) const {
    return Simd::shift_halves(vector_at<Simd>(four(g).scales, g % 4 / 2, v), int(g % 2 * 8));
  }
};

/// Q3_K, per two blocks of 256 columns (the last may be alone): [2][16] f16 d, then for each block
///   [2][16] words   the lower 4 bits of scales + 32 of a four: of group k at bit 4 k, those of its
///                   second half 16 higher
///   [16] words      the upper 2 bits: of group g at bit 2 g, likewise
///   [2][3][4] vectors of codes of a four: bits 0 to 2 of vector [k][i] hold quad i of group k,
///   bits
///                   3 to 5 quad 4 + i. Of group 3 quad i has its upper bits in bits 6, 7 of
///                   [0][i], the lowest in bit 6 of [2][i], quad 4 + i in [1][i] and bit 7 of
///                   [2][i].
///
/// Codes q stand for q - 4. Expanded they are 4 - q, and d its negative, because (4 - q) * scale
/// fits a signed byte, and (q - 4) * scale may be 128.
template <typename Simd>
struct PanelQ3_K : FoldedGroups<Simd, PanelQ3_K<Simd>> {
  using I = typename Simd::I;
  using F = typename Simd::F;
  static constexpr std::size_t kParts = 2;
  static constexpr int kOffset = Simd::kSignedOffset, kMost = 7, kFoldedMost = 127;
  static constexpr bool kMinimum = false, kSigned = true;
  static constexpr std::size_t kCodes = 192, kBlock = kCodes + 1536, kTwo = 64 + 2 * kBlock;
  static constexpr std::size_t kSweep = kTwo / 16;
  const std::byte* panel;

  PanelQ3_K(const std::byte* bytes, std::size_t) : panel(bytes) {}

  Four four(std::size_t g) const {
    const std::byte* const block = two(g) + 64 + g / 8 % 2 * kBlock;
    const std::size_t half = g % 8 / 4;
    return {block + half * kVectorBytes, block + 128, block + kCodes + half * 768, int(half)};
  }
  template <std::size_t K>
  static constexpr int place(std::size_t half) {
    if (K == 3) return Simd::kWideBytes ? 5 : 4;
    return half == 0 ? 0 : 3;
  }
  template <std::size_t K, std::size_t Q>
  LEMMA_FORCE_INLINE static I codes_of(const Four& four, std::size_t v) {
    constexpr int kPlace = place<K>(Q / 4);
    constexpr std::size_t kUpper = K < 3 ? K : Q / 4;
    const I codes = vector_at<Simd>(four.codes, kUpper * 4 + Q % 4, v);
    if constexpr (K < 3) {
      return Simd::template bits<3, kPlace, kPlace>(codes);
    } else {
      return Simd::template or_bits<1, 6 + Q / 4, kPlace>(
          Simd::template bits<2, 6, kPlace + 1>(codes), vector_at<Simd>(four.codes, 8 + Q % 4, v));
    }
  }
  template <std::size_t K>
  LEMMA_FORCE_INLINE static I scales_of(const Four& four, std::size_t v) {
    const I low = Simd::template halves<4, 4 * K>(vector_at<Simd>(four.scales, 0, v));
    return with_upper<2 * K>(low, upper_scales(four, v));
  }
  LEMMA_FORCE_INLINE static I centred(I pair, I sums) { return Simd::less_four_times(pair, sums); }

  template <std::size_t Q>
  I folded(std::size_t g, std::size_t v) const {
    const Four at = four(g);
    const I codes =
        g % 4 < 3
            ? Simd::template bits<3, Q / 4 * 3>(vector_at<Simd>(at.codes, g % 4 * 4 + Q % 4, v))
            : Simd::template bits<3, place<3>(0)>(codes_of<3, Q>(at, v));
    const I factors = Simd::template spread<Q / 4 * 2>(scales(g, v));
    return Simd::as_signed(Simd::times(Simd::template less_than<4>(codes), factors));
  }
  F block_scale(std::size_t g, std::size_t v) const {
    return Simd::load_f16(two(g) + g / 8 % 2 * 32 + v * 2 * Simd::kLanes);
  }
  F folded_scale(std::size_t g, std::size_t v) const {
    return Simd::mul(block_scale(g, v), Simd::set(-1.f));
  }

 private:
  const std::byte* two(std::size_t g) const { return panel + g / 16 * kTwo; }
  /// Of group k of the four at bit 2 k.
  LEMMA_FORCE_INLINE static I upper_scales(const Four& four, std::size_t v) {
    return Simd::shift_halves(vector_at<Simd>(four.block_scales, 0, v), four.half * 8);
  }
  template <int From>
  LEMMA_FORCE_INLINE static I with_upper(I low, I upper) {
    return Simd::less_four_times(Simd::template or_halves<2, From, 4>(low, upper),
                                 Simd::set_int(0x00080008));
  }
  I scales(std::size_t g, std::size_t v) const {
    const Four at = four(g);
    const I low = Simd::shift_halves(vector_at<Simd>(at.scales, 0, v), int(g % 4 * 4));
    const I upper = Simd::shift_halves(upper_scales(at, v), int(g % 4 * 2));
    return with_upper<0>(Simd::template halves<4, 0>(low), upper);
  }
};

#undef LEMMA_FORCE_INLINE

}  // namespace lemma::cpu
