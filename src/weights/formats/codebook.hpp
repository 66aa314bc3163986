// SPDX-License-Identifier: Apache-2.0
// Codebooks: sixteen values that a nibble chooses from. IQ4_NL and IQ4_XS have one that is denser
// near zero; MXFP4 and NVFP4 have the floats of 4 bits (E2M1), doubled so that they are whole.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "weights/formats/fit.hpp"

namespace lemma::weights::formats {

using Codebook = std::array<std::int8_t, 16>;

/// GGML's table for IQ4_NL and IQ4_XS; nibble -> value.
inline constexpr Codebook kIQ4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
/// Twice the values of E2M1; nibble -> value. Both zeros are 0.
inline constexpr Codebook kE2M1Values = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Nearest nibbles by a table: midpoints between whole values are multiples of 1/2, so the number
/// of half steps below y decides.
class NearestNibble {
 public:
  explicit constexpr NearestNibble(const Codebook& values) : values_(values) {
    for (int half = -256; half < 256; ++half) {
      const double centre = half * 0.5 + 0.25;
      int best = 0;
      for (int i = 1; i < 16; ++i) {
        if (distance(values[static_cast<std::size_t>(i)], centre) <
            distance(values[static_cast<std::size_t>(best)], centre)) {
          best = i;
        }
      }
      nibbles_[static_cast<std::size_t>(half + 256)] = static_cast<std::uint8_t>(best);
    }
  }
  std::uint8_t nibble(double y) const noexcept {
    const double half = std::floor(2 * (y > -128 ? y < 127.75 ? y : 127.75 : -128));
    return nibbles_[static_cast<std::size_t>(static_cast<int>(half) + 256)];
  }
  int value(double y) const noexcept { return values_[nibble(y)]; }

 private:
  static constexpr double distance(double a, double b) noexcept { return a > b ? a - b : b - a; }

  Codebook values_;
  std::array<std::uint8_t, 512> nibbles_{};
};

inline constexpr NearestNibble kNearestIQ4{kIQ4Values};
inline constexpr NearestNibble kNearestE2M1{kE2M1Values};

/// The weighted squared error of x against scale * (the nearest value); `limit` as fit.hpp says.
double codebook_error(const NearestNibble& nearest, std::span<const float> x,
                      std::span<const float> w, double scale, double limit = kNoLimit) noexcept;

/// IQ4's values for ScaledFit and IQ4_NL: the largest gap between neighbours is 24.
struct IQ4Codes {
  static constexpr int kReach = 113;
  static double fit(std::span<const float> x, std::span<const float> w, double limit) noexcept;
  static double error(std::span<const float> x, std::span<const float> w, double scale,
                      double limit) noexcept {
    return codebook_error(kNearestIQ4, x, w, scale, limit);
  }
  static int nearest(double x, double inverse) noexcept { return kNearestIQ4.value(x * inverse); }
};

}  // namespace lemma::weights::formats
