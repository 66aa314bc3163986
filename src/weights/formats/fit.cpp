// SPDX-License-Identifier: Apache-2.0
#include "weights/formats/fit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weights/formats/codec.hpp"

namespace lemma::weights::formats {
namespace {

// Starting scales put the extreme up to a quarter of the codes beyond their end (it clips) and
// before it. How far from the range the best scale lies depends on how fine the codes are against
// the spread of the elements and, most of all, on how unequal the importance is: an extreme that
// matters little may clip by several steps.
template <typename Body>
void for_each_offset(int codes, const Body& body) {
  body(0.0);
  for (double offset = 0.25; offset <= codes / 4.0; offset += offset < 1 ? 0.25 : codes / 32.0)
    body(offset), body(-offset);
}

// The best scale's codes give a regression that is often better still; it settles soon.
constexpr int kRounds = 3;

constexpr double kTooFar = std::numeric_limits<double>::infinity();

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
                     int low, int high, double limit) noexcept {
  const double inverse = scale != 0 ? 1 / scale : 0;
  double sum = 0, worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = x[i] - (scale * code(x[i] + min, inverse, low, high) - min);
    const double square = difference * difference, weighed = w[i] * square;
    sum += weighed;
    const double least = square < weighed ? square : weighed;
    worst = worst < least ? least : worst;
  }
  return worst <= limit * limit ? sum : kTooFar;
}

Affine fit_affine(std::span<const float> x, std::span<const float> w, int levels, Minimum minimum,
                  double limit) noexcept {
  const auto [lowest, highest] = std::minmax_element(x.begin(), x.end());
  const double low = minimum == Minimum::kAny ? *lowest : std::min(0.0, double{*lowest});
  const double range = *highest - low;
  if (!(range > 0)) return {0, -low};
  Affine best = {range / levels, -low};
  double best_error = squared_error(x, w, best.scale, best.min, 0, levels, limit);
  // Takes the line of the codes that (x + min) * inverse gives, if it is better.
  const auto better = [&](double inverse, double min) {
    Sums s;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double q = code(x[i] + min, inverse, 0, levels), wq = w[i] * q;
      s.n += w[i], s.q += wq, s.qq += wq * q, s.x += double{w[i]} * x[i], s.qx += wq * x[i];
    }
    const Affine candidate = regress(s, minimum);
    const double error = squared_error(x, w, candidate.scale, candidate.min, 0, levels, limit);
    if (!(error < best_error)) return false;
    best = candidate, best_error = error;
    return true;
  };
  for_each_offset(levels + 1, [&](double offset) { better((levels + offset) / range, -low); });
  for (int k = 0; k < kRounds && best.scale > 0 && better(1 / best.scale, best.min); ++k) {
  }
  return best;
}

double fit_symmetric(std::span<const float> x, std::span<const float> w, int levels,
                     double limit) noexcept {
  double extreme = 0;
  for (const float v : x) {
    if (std::fabs(v) > std::fabs(extreme)) extreme = v;
  }
  if (extreme == 0) return 0;
  // The code -levels has no positive twin, so the extreme element is the one that gets it.
  double best = -extreme / levels;
  double best_error = squared_error(x, w, best, 0, -levels, levels - 1, limit);
  const auto better = [&](double inverse) {
    double qq = 0, qx = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double q = code(x[i], inverse, -levels, levels - 1), wq = w[i] * q;
      qq += wq * q, qx += wq * x[i];
    }
    if (!(qq > 0)) return false;
    const double candidate = qx / qq;
    const double error = squared_error(x, w, candidate, 0, -levels, levels - 1, limit);
    if (!(error < best_error)) return false;
    best = candidate, best_error = error;
    return true;
  };
  for_each_offset(levels, [&](double offset) { better(-(levels + offset) / extreme); });
  for (int k = 0; k < kRounds && best != 0 && better(1 / best); ++k) {
  }
  return best;
}

}  // namespace lemma::weights::formats
