// SPDX-License-Identifier: Apache-2.0
// The encoder that IQ1_S and IQ1_M share: 8 elements a point of the grid of -1, 0 and 1, shifted by
// an eighth up or down, times an odd whole scale, which an f16 scale multiplies:
//   x ~ d * (2 s + 1) * (g +- 1/8),   s in 0..7
// Scales cover `group` elements and shifts `shift` elements. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lemma::weights::formats {

struct IQ1Shape {
  std::size_t group;  ///< 16 or 32
  std::size_t shift;  ///< 8, or as group
};

struct IQ1Block {
  std::uint16_t d = 0;                     ///< f16
  std::array<std::uint8_t, 16> scales{};   ///< s, one a group
  std::array<std::uint16_t, 32> points{};  ///< one for 8 elements
  std::array<bool, 32> down{};             ///< g - 1/8, for 8 elements
};

/// Looks for the least weighted squared error.
IQ1Block fit_iq1(const IQ1Shape& shape, std::span<const float, 256> in,
                 std::span<const float, 256> weight) noexcept;

}  // namespace lemma::weights::formats
