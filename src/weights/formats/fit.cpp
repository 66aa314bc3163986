// SPDX-License-Identifier: Apache-2.0
#include "weights/formats/fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "weights/formats/codec.hpp"

namespace lemma::weights::formats {
namespace {

// Starting scales spread the range over levels + offset steps. Offsets below zero shrink the range
// (outliers clip), offsets above zero widen the steps' count. Beyond +-1 nothing better is found.
constexpr std::array kOffsets = {-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0};

// Sums of the regression of x on the codes q.
struct Sums {
  double n = 0, q = 0, qq = 0, x = 0, qx = 0;
};

Affine regress(const Sums& s, Minimum minimum) noexcept {
  const double determinant = s.n * s.qq - s.q * s.q;
  if (determinant > 0) {
    const double scale = (s.n * s.qx - s.q * s.x) / determinant;
    const double min = (scale * s.q - s.x) / s.n;
    if (scale > 0 && (min >= 0 || minimum == Minimum::kAny)) return {scale, min};
  }
  // Without a minimum the line goes through the origin.
  return {s.qq > 0 ? std::max(0.0, s.qx / s.qq) : 0, 0};
}

}  // namespace

double squared_error(std::span<const float> x, std::span<const float> w, double scale, double min,
                     int low, int high) noexcept {
  const double inverse = scale != 0 ? 1 / scale : 0;
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = x[i] - (scale * code(x[i] + min, inverse, low, high) - min);
    sum += w[i] * difference * difference;
  }
  return sum;
}

Affine fit_affine(std::span<const float> x, std::span<const float> w, int levels,
                  Minimum minimum) noexcept {
  const auto [lowest, highest] = std::minmax_element(x.begin(), x.end());
  const double low = minimum == Minimum::kAny ? *lowest : std::min(0.0, double{*lowest});
  const double range = *highest - low;
  if (!(range > 0)) return {0, -low};
  Affine best = {range / levels, -low};
  double best_error = squared_error(x, w, best.scale, best.min, 0, levels);
  for (const double offset : kOffsets) {
    const double inverse = (levels + offset) / range;
    Sums s;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double q = code(x[i] - low, inverse, 0, levels), wq = w[i] * q;
      s.n += w[i], s.q += wq, s.qq += wq * q, s.x += double{w[i]} * x[i], s.qx += wq * x[i];
    }
    const Affine candidate = regress(s, minimum);
    const double error = squared_error(x, w, candidate.scale, candidate.min, 0, levels);
    if (error < best_error) best = candidate, best_error = error;
  }
  return best;
}

double fit_symmetric(std::span<const float> x, std::span<const float> w, int levels) noexcept {
  double extreme = 0;
  for (const float v : x) {
    if (std::fabs(v) > std::fabs(extreme)) extreme = v;
  }
  if (extreme == 0) return 0;
  // The code -levels has no positive twin, so the extreme element is the one that gets it.
  double best = -extreme / levels;
  double best_error = squared_error(x, w, best, 0, -levels, levels - 1);
  for (const double offset : kOffsets) {
    const double inverse = -(levels + offset) / extreme;
    double qq = 0, qx = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double q = code(x[i], inverse, -levels, levels - 1), wq = w[i] * q;
      qq += wq * q, qx += wq * x[i];
    }
    if (!(qq > 0)) continue;
    const double candidate = qx / qq;
    const double error = squared_error(x, w, candidate, 0, -levels, levels - 1);
    if (error < best_error) best = candidate, best_error = error;
  }
  return best;
}

}  // namespace lemma::weights::formats
