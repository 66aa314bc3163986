// SPDX-License-Identifier: Apache-2.0
#include "weights/formats/codebook.hpp"

#include <algorithm>

namespace lemma::weights::formats {
namespace {

// Starting scales put the extreme element at these places, up to a quarter beyond the table's ends
// (it clips) and before them.
constexpr std::array kPlaces = {-158.0, -150.0, -142.0, -135.0, -127.0, -119.0,
                                -111.0, -104.0, -96.0,  85.0,   92.0,   99.0,
                                106.0,  113.0,  120.0,  127.0,  134.0,  141.0};

}  // namespace

double codebook_error(const NearestNibble& nearest, std::span<const float> x,
                      std::span<const float> w, double scale, double limit) noexcept {
  const double inverse = scale != 0 ? 1 / scale : 0;
  double sum = 0, worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = x[i] - scale * nearest.value(x[i] * inverse);
    const double square = difference * difference, weighed = w[i] * square;
    sum += weighed;
    worst = std::max(worst, std::min(square, weighed));
  }
  return worst <= limit * limit ? sum : std::numeric_limits<double>::infinity();
}

double IQ4Codes::fit(std::span<const float> x, std::span<const float> w, double limit) noexcept {
  double extreme = 0;
  for (const float v : x) {
    if (std::fabs(v) > std::fabs(extreme)) extreme = v;
  }
  if (extreme == 0) return 0;
  double best = extreme / kReach, best_error = error(x, w, best, limit);
  for (const double place : kPlaces) {
    const double inverse = place / extreme;
    double qq = 0, qx = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double q = nearest(x[i], inverse), wq = w[i] * q;
      qq += wq * q, qx += wq * x[i];
    }
    const double candidate = qx / qq;  // no value is 0
    const double candidate_error = error(x, w, candidate, limit);
    if (candidate_error < best_error) best = candidate, best_error = candidate_error;
  }
  return best;
}

}  // namespace lemma::weights::formats
