// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/kernels/grid_points.hpp"

#include <array>

#include "weights/formats/grids.hpp"

namespace lemma::cpu {
namespace {

namespace grids = weights::formats;

/// A grid packs the level of coordinate i in bits 2 i, 2 i + 1 or, of eight levels, from bit 3 i
/// on.
template <std::size_t Levels, std::size_t Count>
GridPoints<Count> make_points(const std::array<std::uint16_t, Count>& grid) noexcept {
  GridPoints<Count> points{};
  for (std::size_t p = 0; p < Count; ++p) {
    if constexpr (Levels == 3) {
      points.low[p] = static_cast<std::uint8_t>(grid[p] & 0xffu);
      points.high[p] = static_cast<std::uint8_t>(grid[p] >> 8);
    } else {
      const auto level = [&](std::size_t i) { return grids::level_of<Levels>(grid[p], i); };
      points.low[p] = static_cast<std::uint8_t>(level(0) | level(1) << 4);
      points.high[p] = static_cast<std::uint8_t>(level(2) | level(3) << 4);
    }
    points.words[p] = static_cast<std::uint16_t>(points.low[p] | points.high[p] << 8);
  }
  return points;
}

/// Magnitudes over `Divisor`, a byte each.
template <typename Word, unsigned Divisor, std::size_t Levels, std::size_t Count>
GridLoads<Word, Count> make_loads(const std::array<std::uint16_t, Count>& grid,
                                  const std::array<std::int8_t, Levels>& magnitudes) noexcept {
  GridLoads<Word, Count> loads{};
  for (std::size_t p = 0; p < Count; ++p) {
    for (std::size_t i = 0; i < sizeof(Word); ++i) {
      const auto magnitude =
          static_cast<std::uint8_t>(magnitudes[grids::level_of<Levels>(grid[p], i)]);
      loads.words[p] |= static_cast<Word>(Word{magnitude} / Divisor) << (8 * i);
    }
  }
  return loads;
}

}  // namespace

const GridLoads<std::uint64_t, 256>& iq2_xxs_loads() noexcept {
  static const auto loads = make_loads<std::uint64_t, 1>(grids::kIQ2_XXSGrid, grids::kIQ2Levels);
  return loads;
}
const GridLoads<std::uint32_t, 256>& iq3_xxs_loads() noexcept {
  static const auto loads =
      make_loads<std::uint32_t, 2>(grids::kIQ3_XXSGrid, grids::kIQ3_XXSLevels);
  return loads;
}
const GridLoads<std::uint32_t, 512>& iq3_s_loads() noexcept {
  static const auto loads = make_loads<std::uint32_t, 1>(grids::kIQ3_SGrid, grids::kIQ3_SLevels);
  return loads;
}
const GridPoints<256>& iq2_xxs_points() noexcept {
  static const GridPoints<256> points = make_points<3>(grids::kIQ2_XXSGrid);
  return points;
}
const GridPoints<256>& iq3_xxs_points() noexcept {
  static const GridPoints<256> points = make_points<8>(grids::kIQ3_XXSGrid);
  return points;
}
const GridPoints<512>& iq3_s_points() noexcept {
  static const GridPoints<512> points = make_points<8>(grids::kIQ3_SGrid);
  return points;
}

}  // namespace lemma::cpu
