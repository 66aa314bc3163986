// SPDX-License-Identifier: Apache-2.0
// Strips of the formats whose codes are points of a grid with signs: IQ1, IQ2 and IQ3. A point is
// looked up once for all its columns, as the part of a word that it becomes; so are signs. What a
// code then stands for is a table that leads the panel:
//
//   IQ2   bits 0, 1 the magnitude's level, bit 2 the sign
//   IQ1   bits 0, 1 the step's level (-1, 0, 1), bit 2 the shift's sign: values 8 g +- 1
//   IQ3   bits 0 .. 2 the magnitude's level, bit 3 the sign
//
// Internal to packing. Pure.
#pragma once

#include <span>

#include "backend/cpu/packing_strips.hpp"
#include "weights/formats/grids.hpp"

namespace lemma::cpu::packing {

namespace grids = weights::formats;

/// For each point of 8 coordinates its pairs: coordinate 4 q + b in bits 2 q, 2 q + 1 of byte b.
template <std::size_t N>
std::array<std::uint32_t, N> pairs_of(const std::array<std::uint16_t, N>& grid) noexcept {
  std::array<std::uint32_t, N> words{};
  for (std::size_t p = 0; p < N; ++p) {
    for (std::size_t i = 0; i < 8; ++i) {
      words[p] |= static_cast<std::uint32_t>(grids::level_of<3>(grid[p], i))
                  << (i % 4 * 8 + i / 4 * 2);
    }
  }
  return words;
}

/// For each point of 4 coordinates its levels, one a byte.
template <std::size_t N>
std::array<std::uint32_t, N> levels_of(const std::array<std::uint16_t, N>& grid) noexcept {
  std::array<std::uint32_t, N> words{};
  for (std::size_t p = 0; p < N; ++p) {
    for (std::size_t i = 0; i < 4; ++i) {
      words[p] |= static_cast<std::uint32_t>(grids::level_of<8>(grid[p], i)) << (i * 8);
    }
  }
  return words;
}

/// Seven stored signs -> the word of bits of their eight columns.
inline constexpr auto kSpreadSeven = [] {
  std::array<std::uint32_t, 128> words{};
  for (unsigned seven = 0; seven < 128; ++seven) {
    words[seven] = kSpreadByte[grids::even_signs(seven)];
  }
  return words;
}();

/// Eight signs -> bit 3 of the bytes of two words.
inline constexpr auto kSignBytes = [] {
  std::array<std::uint64_t, 256> words{};
  for (std::size_t signs = 0; signs < 256; ++signs) {
    for (std::size_t i = 0; i < 8; ++i) {
      words[signs] |= static_cast<std::uint64_t>(signs >> i & 1) << (i * 8 + 3);
    }
  }
  return words;
}();

/// Seven stored signs -> the same.
inline constexpr auto kSignBytesOfSeven = [] {
  std::array<std::uint64_t, 128> words{};
  for (unsigned seven = 0; seven < 128; ++seven)
    words[seven] = kSignBytes[grids::even_signs(seven)];
  return words;
}();

/// Values and negatives of three magnitudes, for codes of a level and a sign.
inline constexpr grids::Codebook kIQ2Table = [] {
  grids::Codebook table{};
  for (std::size_t n = 0; n < 3; ++n) {
    table[n] = grids::kIQ2Levels[n];
    table[n + 4] = static_cast<std::int8_t>(-grids::kIQ2Levels[n]);
  }
  return table;
}();

inline constexpr grids::Codebook kIQ1Table = [] {
  grids::Codebook table{};
  for (std::size_t n = 0; n < 3; ++n) {
    table[n] = static_cast<std::int8_t>(8 * grids::kIQ1Levels[n] + 1);
    table[n + 4] = static_cast<std::int8_t>(8 * grids::kIQ1Levels[n] - 1);
  }
  return table;
}();

constexpr grids::Codebook signed_table(const std::array<std::int8_t, 8>& levels) noexcept {
  grids::Codebook table{};
  for (std::size_t n = 0; n < 8; ++n) {
    table[n] = levels[n];
    table[n + 8] = static_cast<std::int8_t>(-levels[n]);
  }
  return table;
}

/// An odd scale 2 s + 1 of a few bits.
constexpr std::uint8_t odd_scale(std::uint32_t s) noexcept {
  return static_cast<std::uint8_t>(2 * s + 1);
}
/// 16 of them from nibbles.
inline void put_odd_scales(const std::uint8_t* nibbles, std::size_t count,
                           std::uint8_t* bytes) noexcept {
  for (std::size_t j = 0; j < count; ++j) {
    bytes[j] = odd_scale(nibbles[j / 2] >> (j % 2 * 4) & 15u);
  }
}

/// The words of a group: pairs of four points, and bits.
inline void put_group(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d,
                      std::uint32_t bits, std::uint32_t* words) noexcept {
  words[0] = a | b << 4;
  words[1] = c | d << 4;
  words[2] = bits;
}

struct IQ2_XXSStrip : BlockStrip<weights::BlockIQ2_XXS> {
  static constexpr const grids::Codebook& kTable = kIQ2Table;
  static constexpr Unit kUnit{.first = 1, .bytes = 8, .words = 24};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    static const auto kPoints = pairs_of(grids::kIQ2_XXSGrid);
    store(to.first, base::f16_to_f32(at(block).d) * 0.125f);
    for (std::size_t j = 0; j < 8; ++j) {
      const auto& part = at(block).parts[j];
      const std::uint32_t signs = part.sign_scale;
      to.bytes[j] = odd_scale(signs >> 28);
      put_group(kPoints[part.index[0]], kPoints[part.index[1]], kPoints[part.index[2]],
                kPoints[part.index[3]],
                join_bits(kSpreadSeven[signs & 127], kSpreadSeven[signs >> 7 & 127],
                          kSpreadSeven[signs >> 14 & 127], kSpreadSeven[signs >> 21 & 127]),
                to.words + j * 3);
    }
  }
};

struct IQ2_XSStrip : BlockStrip<weights::BlockIQ2_XS> {
  static constexpr const grids::Codebook& kTable = kIQ2Table;
  static constexpr Unit kUnit{.first = 1, .bytes = 16, .words = 24};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    static const auto kPoints = pairs_of(grids::kIQ2_XSGrid);
    store(to.first, base::f16_to_f32(at(block).d) * 0.125f);
    put_odd_scales(at(block).scales, 16, to.bytes);
    for (std::size_t j = 0; j < 8; ++j) {
      const auto q = [&](std::size_t k) { return std::uint32_t{at(block).qs[j * 4 + k]}; };
      put_group(kPoints[q(0) & 511], kPoints[q(1) & 511], kPoints[q(2) & 511], kPoints[q(3) & 511],
                join_bits(kSpreadSeven[q(0) >> 9], kSpreadSeven[q(1) >> 9], kSpreadSeven[q(2) >> 9],
                          kSpreadSeven[q(3) >> 9]),
                to.words + j * 3);
    }
  }
};

struct IQ2_SStrip : BlockStrip<weights::BlockIQ2_S> {
  static constexpr const grids::Codebook& kTable = kIQ2Table;
  static constexpr Unit kUnit{.first = 1, .bytes = 16, .words = 24};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    static const auto kPoints = pairs_of(grids::kIQ2_SGrid);
    store(to.first, base::f16_to_f32(at(block).d) * 0.125f);
    put_odd_scales(at(block).scales, 16, to.bytes);
    for (std::size_t j = 0; j < 8; ++j) {
      const std::uint8_t* const low = at(block).qs + j * 4;
      const unsigned high = at(block).qh[j];
      put_group(kPoints[low[0] | (high & 3) << 8], kPoints[low[1] | (high >> 2 & 3) << 8],
                kPoints[low[2] | (high >> 4 & 3) << 8], kPoints[low[3] | (high >> 6) << 8],
                spread_bits(at(block).signs + j * 4), to.words + j * 3);
    }
  }
};

inline const std::array<std::uint32_t, 2048>& iq1_points() noexcept {
  static const auto kPoints = pairs_of(grids::kIQ1Grid);
  return kPoints;
}

struct IQ1_SStrip : BlockStrip<weights::BlockIQ1_S> {
  static constexpr const grids::Codebook& kTable = kIQ1Table;
  static constexpr Unit kUnit{.first = 1, .bytes = 8, .words = 24};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    const auto& points = iq1_points();
    store(to.first, base::f16_to_f32(at(block).d) * 0.125f);
    for (std::size_t j = 0; j < 8; ++j) {
      const std::uint32_t word = at(block).qh[j];
      const std::uint8_t* const low = at(block).qs + j * 4;
      to.bytes[j] = odd_scale(word >> 12 & 7);
      put_group(points[low[0] | (word & 7) << 8], points[low[1] | (word >> 3 & 7) << 8],
                points[low[2] | (word >> 6 & 7) << 8], points[low[3] | (word >> 9 & 7) << 8],
                word >> 15 != 0 ? ~0u : 0u, to.words + j * 3);
    }
  }
};

struct IQ1_MStrip : BlockStrip<weights::BlockIQ1_M> {
  static constexpr const grids::Codebook& kTable = kIQ1Table;
  static constexpr Unit kUnit{.first = 1, .bytes = 16, .words = 24};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    const auto& points = iq1_points();
    std::uint32_t d = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const std::uint32_t word = at(block).scales[j];
      d |= word >> 12 << (4 * j);
      for (std::size_t k = 0; k < 4; ++k) to.bytes[j * 4 + k] = odd_scale(word >> (3 * k) & 7);
    }
    store(to.first, base::f16_to_f32(static_cast<std::uint16_t>(d)) * 0.125f);
    for (std::size_t j = 0; j < 8; ++j) {
      const std::uint8_t* const low = at(block).qs + j * 4;
      const std::uint32_t high = load<std::uint16_t>(at(block).qh + j * 2);
      const auto shift = [&](int k) { return 0x03030303u * (high >> (4 * k + 3) & 1); };
      put_group(points[low[0] | (high & 7) << 8], points[low[1] | (high >> 4 & 7) << 8],
                points[low[2] | (high >> 8 & 7) << 8], points[low[3] | (high >> 12 & 7) << 8],
                join_bits(shift(0), shift(1), shift(2), shift(3)), to.words + j * 3);
    }
  }
};

/// The nibbles of a group from four pairs of points, a word each, with their signs.
inline void put_nibble_group(const std::array<std::uint64_t, 4>& pairs,
                             std::uint32_t* words) noexcept {
  store(words, pairs[0] | pairs[2] << 4);
  store(words + 2, pairs[1] | pairs[3] << 4);
}

struct IQ3_XXSStrip : BlockStrip<weights::BlockIQ3_XXS> {
  static constexpr grids::Codebook kTable = signed_table(grids::kIQ3_XXSLevels);
  static constexpr Unit kUnit{.first = 1, .bytes = 8, .words = 32};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    static const auto kPoints = levels_of(grids::kIQ3_XXSGrid);
    store(to.first, base::f16_to_f32(at(block).d) * 0.25f);
    for (std::size_t j = 0; j < 8; ++j) {
      const std::uint32_t signs = at(block).sign_scale[j];
      const std::uint8_t* const q = at(block).qs + j * 8;
      to.bytes[j] = odd_scale(signs >> 28);
      std::array<std::uint64_t, 4> pairs;
      for (std::size_t k = 0; k < 4; ++k) {
        pairs[k] = kPoints[q[2 * k]] | std::uint64_t{kPoints[q[2 * k + 1]]} << 32 |
                   kSignBytesOfSeven[signs >> (7 * k) & 127u];
      }
      put_nibble_group(pairs, to.words + j * 4);
    }
  }
};

struct IQ3_SStrip : BlockStrip<weights::BlockIQ3_S> {
  static constexpr grids::Codebook kTable = signed_table(grids::kIQ3_SLevels);
  static constexpr Unit kUnit{.first = 1, .bytes = 8, .words = 32};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    static const auto kPoints = levels_of(grids::kIQ3_SGrid);
    store(to.first, base::f16_to_f32(at(block).d));
    put_odd_scales(at(block).scales, 8, to.bytes);
    for (std::size_t j = 0; j < 8; ++j) {
      const std::uint8_t* const q = at(block).qs + j * 8;
      const unsigned high = at(block).qh[j];
      std::array<std::uint64_t, 4> pairs;
      for (std::size_t k = 0; k < 4; ++k) {
        const auto point = [&](std::size_t i) { return kPoints[q[i] | (high >> i & 1) << 8]; };
        pairs[k] = point(2 * k) | std::uint64_t{point(2 * k + 1)} << 32 |
                   kSignBytes[at(block).signs[j * 4 + k]];
      }
      put_nibble_group(pairs, to.words + j * 4);
    }
  }
};

}  // namespace lemma::cpu::packing
