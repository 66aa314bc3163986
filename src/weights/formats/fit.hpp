// SPDX-License-Identifier: Apache-2.0
// Least-squares search for the scale (and the minimum) of a small group of elements. Rounding makes
// the squared error a bumpy function of the scale, so a few starting scales are tried; for the
// codes that each one gives, the best scale and minimum follow in closed form (linear regression).
// Errors are weighed by the elements' importance `w`, as many positive numbers as elements. Pure;
// doubles, so that no finite f32 overflows.
#pragma once

#include <limits>
#include <span>

namespace lemma::weights::formats {

/// Scales are passed over that leave an element with w >= 1 farther off than a limit, or one with a
/// smaller w farther off than 1/sqrt(w) times that.
inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// x ~ scale * q - min with q in [0, levels] and scale >= 0.
struct Affine {
  double scale = 0;
  double min = 0;
};
/// The K formats store no minimum below zero: with kNotNegative the codes reach down from zero at
/// least.
enum class Minimum { kNotNegative, kAny };
Affine fit_affine(std::span<const float> x, std::span<const float> w, int levels, Minimum minimum,
                  double limit = kNoLimit) noexcept;

/// The scale (of either sign) of x ~ scale * q with q in [-levels, levels - 1].
double fit_symmetric(std::span<const float> x, std::span<const float> w, int levels,
                     double limit = kNoLimit) noexcept;

/// The squared error of x against scale * q - min with each q the best code in [low, high];
/// infinite where one breaks the limit.
double squared_error(std::span<const float> x, std::span<const float> w, double scale, double min,
                     int low, int high, double limit = kNoLimit) noexcept;

}  // namespace lemma::weights::formats
