// SPDX-License-Identifier: Apache-2.0
// Strips of the formats whose codes are points of a grid: IQ1, IQ2 and IQ3. IQ2_XXS and IQ3 keep
// their indices and signs (kernels/project_points.hpp); points of the others are looked up once for
// all their columns, as the parts of words that they become, and so are signs
// (kernels/project_grids.hpp).
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

/// Seven stored signs -> the word of bits of their eight columns.
inline constexpr auto kSpreadSeven = [] {
  std::array<std::uint32_t, 128> words{};
  for (unsigned seven = 0; seven < 128; ++seven) {
    words[seven] = kSpreadByte[grids::even_signs(seven)];
  }
  return words;
}();

/// The pairs of a group from four points.
inline void put_pairs_of_points(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d,
                                std::uint32_t* words) noexcept {
  words[0] = a | b << 4;
  words[1] = c | d << 4;
}
inline void put_group(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d,
                      std::uint32_t bits, std::uint32_t* words) noexcept {
  put_pairs_of_points(a, b, c, d, words);
  words[2] = bits;
}

struct IQ2_XSStrip : BlockStrip<weights::BlockIQ2_XS> {
  static constexpr Unit kUnit{.first = 1, .words = 2 + 24};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    static const auto kPoints = pairs_of(grids::kIQ2_XSGrid);
    store(to.first, base::f16_to_f32(at(block).d) * 0.125f);
    std::memcpy(to.words, at(block).scales, 8);
    for (std::size_t j = 0; j < 8; ++j) {
      const auto q = [&](std::size_t k) { return std::uint32_t{at(block).qs[j * 4 + k]}; };
      put_group(kPoints[q(0) & 511], kPoints[q(1) & 511], kPoints[q(2) & 511], kPoints[q(3) & 511],
                join_bits(kSpreadSeven[q(0) >> 9], kSpreadSeven[q(1) >> 9], kSpreadSeven[q(2) >> 9],
                          kSpreadSeven[q(3) >> 9]),
                to.words + 2 + j * 3);
    }
  }
};

struct IQ2_SStrip : BlockStrip<weights::BlockIQ2_S> {
  static constexpr Unit kUnit{.first = 1, .words = 2 + 24};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    static const auto kPoints = pairs_of(grids::kIQ2_SGrid);
    store(to.first, base::f16_to_f32(at(block).d) * 0.125f);
    std::memcpy(to.words, at(block).scales, 8);
    for (std::size_t j = 0; j < 8; ++j) {
      const std::uint8_t* const low = at(block).qs + j * 4;
      const unsigned high = at(block).qh[j];
      put_group(kPoints[low[0] | (high & 3) << 8], kPoints[low[1] | (high >> 2 & 3) << 8],
                kPoints[low[2] | (high >> 4 & 3) << 8], kPoints[low[3] | (high >> 6) << 8],
                spread_bits(at(block).signs + j * 4), to.words + 2 + j * 3);
    }
  }
};

inline const std::array<std::uint32_t, 2048>& iq1_points() noexcept {
  static const auto kPoints = pairs_of(grids::kIQ1Grid);
  return kPoints;
}

struct IQ1_SStrip : BlockStrip<weights::BlockIQ1_S> {
  static constexpr Unit kUnit{.first = 1, .words = 1 + 16};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    const auto& points = iq1_points();
    store(to.first, base::f16_to_f32(at(block).d) * 0.125f);
    to.words[0] = 0;
    for (std::size_t j = 0; j < 8; ++j) {
      const std::uint32_t word = at(block).qh[j];
      const std::uint8_t* const low = at(block).qs + j * 4;
      to.words[0] |= word >> 12 << (4 * j);
      put_pairs_of_points(points[low[0] | (word & 7) << 8], points[low[1] | (word >> 3 & 7) << 8],
                          points[low[2] | (word >> 6 & 7) << 8],
                          points[low[3] | (word >> 9 & 7) << 8], to.words + 1 + j * 2);
    }
  }
};

/// Four numbers of three bits as nibbles, and the top bits of four nibbles as a nibble.
constexpr std::uint32_t threes_apart(std::uint32_t x) noexcept {
  return (x & 7u) | (x & 0x38u) << 1 | (x & 0x1c0u) << 2 | (x & 0xe00u) << 3;
}
constexpr std::uint32_t top_bits(std::uint32_t nibbles) noexcept {
  std::uint32_t x = nibbles >> 3 & 0x1111u;
  x = (x | x >> 3) & 0x0303u;
  return (x | x >> 6) & 15u;
}

struct IQ1_MStrip : BlockStrip<weights::BlockIQ1_M> {
  static constexpr Unit kUnit{.first = 1, .words = 2 + 1 + 16};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    const auto& points = iq1_points();
    const auto& scales = at(block).scales;
    std::uint32_t d = 0, shifts = 0;
    for (std::size_t j = 0; j < 4; ++j) d |= std::uint32_t{scales[j]} >> 12 << (4 * j);
    store(to.first, base::f16_to_f32(static_cast<std::uint16_t>(d)) * 0.125f);
    to.words[0] = threes_apart(scales[0]) | threes_apart(scales[1]) << 16;
    to.words[1] = threes_apart(scales[2]) | threes_apart(scales[3]) << 16;
    for (std::size_t j = 0; j < 8; ++j) {
      const std::uint8_t* const low = at(block).qs + j * 4;
      const std::uint32_t high = load<std::uint16_t>(at(block).qh + j * 2);
      shifts |= top_bits(high) << (4 * j);
      put_pairs_of_points(points[low[0] | (high & 7) << 8], points[low[1] | (high >> 4 & 7) << 8],
                          points[low[2] | (high >> 8 & 7) << 8],
                          points[low[3] | (high >> 12 & 7) << 8], to.words + 3 + j * 2);
    }
    to.words[2] = shifts;
  }
};

/// Four times seven signs, then four bits, as four bytes of eight signs, whose number is even.
constexpr std::uint32_t four_times_eight_signs(std::uint32_t sevens) noexcept {
  const std::uint32_t x = (sevens & 0x7fu) | (sevens & 0x3f80u) << 1 | (sevens & 0x1fc000u) << 2 |
                          (sevens & 0xfe00000u) << 3;
  std::uint32_t parity = x ^ x >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return x | (parity & 0x01010101u) << 7;
}

struct IQ2_XXSStrip : BlockStrip<weights::BlockIQ2_XXS> {
  static constexpr Unit kUnit{.first = 1, .words = 1 + 16};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    store(to.first, base::f16_to_f32(at(block).d) * 0.125f);
    to.words[0] = 0;
    for (std::size_t j = 0; j < 8; ++j) {
      const auto& part = at(block).parts[j];
      const std::uint32_t signs = part.sign_scale;
      to.words[0] |= signs >> 28 << (4 * j);
      to.words[1 + 2 * j] = load<std::uint32_t>(part.index);
      to.words[2 + 2 * j] = four_times_eight_signs(signs);
    }
  }
};

/// Of eight bytes those with even and those with odd numbers.
inline void put_even_and_odd(std::uint64_t bytes, std::uint32_t* words) noexcept {
  for (int odd = 0; odd < 2; ++odd) {
    std::uint64_t x = bytes >> (8 * odd) & 0x00ff00ff00ff00ffu;
    x = (x | x >> 8) & 0x0000ffff0000ffffu;
    words[odd] = static_cast<std::uint32_t>(x | x >> 16);
  }
}
/// In every byte, bits with even numbers to the lower half, those with odd ones to the upper.
constexpr std::uint32_t even_bits_first(std::uint32_t x) noexcept {
  std::uint32_t t = (x ^ x >> 1) & 0x22222222u;
  x ^= t ^ t << 1;
  t = (x ^ x >> 2) & 0x0c0c0c0cu;
  return x ^ t ^ t << 2;
}
/// Bit i of byte j becomes bit j of byte i.
constexpr std::uint64_t transposed_eights(std::uint64_t x) noexcept {
  std::uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aau;
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000cccc0000ccccu;
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000f0f0f0f0u;
  return x ^ t ^ t << 28;
}

struct IQ3_XXSStrip : BlockStrip<weights::BlockIQ3_XXS> {
  static constexpr Unit kUnit{.first = 1, .words = 1 + 24};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    store(to.first, base::f16_to_f32(at(block).d) * 0.25f);
    to.words[0] = 0;
    for (std::size_t j = 0; j < 8; ++j) {
      const std::uint32_t signs = at(block).sign_scale[j];
      to.words[0] |= signs >> 28 << (4 * j);
      put_even_and_odd(load<std::uint64_t>(at(block).qs + j * 8), to.words + 1 + j * 3);
      to.words[3 + j * 3] = even_bits_first(four_times_eight_signs(signs));
    }
  }
};

struct IQ3_SStrip : BlockStrip<weights::BlockIQ3_S> {
  static constexpr Unit kUnit{.first = 1, .words = 1 + 2 + 24};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    store(to.first, base::f16_to_f32(at(block).d));
    to.words[0] = load<std::uint32_t>(at(block).scales);
    put_even_and_odd(transposed_eights(load<std::uint64_t>(at(block).qh)), to.words + 1);
    for (std::size_t j = 0; j < 8; ++j) {
      put_even_and_odd(load<std::uint64_t>(at(block).qs + j * 8), to.words + 3 + j * 3);
      to.words[5 + j * 3] = even_bits_first(load<std::uint32_t>(at(block).signs + j * 4));
    }
  }
};

}  // namespace lemma::cpu::packing
