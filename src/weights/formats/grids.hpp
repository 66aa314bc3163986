// SPDX-License-Identifier: Apache-2.0
// The grids of the IQ1, IQ2 and IQ3 formats: sets of points that an index chooses from, 8
// coordinates each (4 in IQ3). They are constants of the formats, chosen by GGML's author among all
// combinations of the levels. A point is packed with the level of coordinate i in bits 2 i, 2 i + 1
// (IQ1, IQ2) or 3 i .. 3 i + 2 (IQ3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lemma::weights::formats {

extern const std::array<std::uint16_t, 2048> kIQ1Grid;
extern const std::array<std::uint16_t, 256> kIQ2_XXSGrid;
extern const std::array<std::uint16_t, 512> kIQ2_XSGrid;
extern const std::array<std::uint16_t, 1024> kIQ2_SGrid;
extern const std::array<std::uint16_t, 256> kIQ3_XXSGrid;
extern const std::array<std::uint16_t, 512> kIQ3_SGrid;

/// What the levels stand for. IQ1's are signed; the others are magnitudes.
inline constexpr std::array<std::int8_t, 3> kIQ1Levels = {-1, 0, 1};
inline constexpr std::array<std::int8_t, 3> kIQ2Levels = {8, 25, 43};
inline constexpr std::array<std::int8_t, 8> kIQ3_XXSLevels = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::array<std::int8_t, 8> kIQ3_SLevels = {1, 3, 5, 7, 9, 11, 13, 15};

/// The level of coordinate `i` of a point of a grid of `Levels` levels.
template <std::size_t Levels>
constexpr std::size_t level_of(std::uint16_t point, std::size_t i) noexcept {
  constexpr std::size_t kBits = Levels > 4 ? 3 : 2;
  return static_cast<std::size_t>(point) >> (kBits * i) & ((1u << kBits) - 1);
}

/// Writes a point's coordinates to `out`, negative where the bit of `signs` is set.
template <std::size_t Levels>
constexpr void put_signed_point(std::uint16_t point, const std::array<std::int8_t, Levels>& levels,
                                int signs, std::int8_t* out) noexcept {
  for (std::size_t i = 0; i < (Levels > 4 ? 4 : 8); ++i) {
    const std::int8_t magnitude = levels[level_of<Levels>(point, i)];
    out[i] = static_cast<std::int8_t>(signs >> i & 1 ? -magnitude : magnitude);
  }
}

/// Writes eight times the coordinates of a point of IQ1, shifted by an eighth, to `out`.
inline void put_shifted_point(int point, bool down, std::int8_t* out) noexcept {
  for (std::size_t i = 0; i < 8; ++i) {
    const int g = kIQ1Levels[level_of<3>(kIQ1Grid[static_cast<std::size_t>(point)], i)];
    out[i] = static_cast<std::int8_t>(8 * g + (down ? -1 : 1));
  }
}

/// Eight sign bits from the seven that are stored: the last makes the number of signs even.
constexpr std::uint8_t even_signs(unsigned seven) noexcept {
  unsigned parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return static_cast<std::uint8_t>((seven & 127u) | (parity & 1u) << 7);
}

}  // namespace lemma::weights::formats
