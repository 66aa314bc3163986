// SPDX-License-Identifier: Apache-2.0
// The encoder that the IQ2 and IQ3 formats share: signs apart from magnitudes, the magnitudes of 8
// or 4 elements a point of a grid, and for each 16 or 32 elements an odd whole scale, which an f16
// scale multiplies: x ~ d * unit * (2 s + 1) * magnitude, s in 0..15. The formats' own files pack
// what is chosen here. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weights/formats/grid_search.hpp"

namespace lemma::weights::formats {

/// What distinguishes the formats.
struct SignedGrid {
  const GridSearch& grid;
  std::size_t group;  ///< elements that share a scale
  bool even_signs;    ///< each 8 elements have an even number of negative ones
  double unit;        ///< a power of two
};

struct SignedGridBlock {
  std::uint16_t d = 0;                    ///< f16
  std::array<std::uint8_t, 16> scales{};  ///< s, one a group
  std::array<std::uint16_t, 64> points{};
  std::array<std::uint8_t, 32> signs{};  ///< bit i of byte j: element 8 j + i is negative
};

/// Looks for the least weighted squared error. Where the signs must be even and are not, the sign
/// of the element that it costs least is changed.
SignedGridBlock search_signed_grid(const SignedGrid& format, std::span<const float, 256> in,
                                   std::span<const float, 256> weight) noexcept;

/// The encoding that the error bounds are argued for: d and the scales are rounded up, so that
/// every magnitude is within the grid's reach, and the points with the smallest largest error are
/// taken.
SignedGridBlock plain_signed_grid(const SignedGrid& format,
                                  std::span<const float, 256> in) noexcept;

}  // namespace lemma::weights::formats
