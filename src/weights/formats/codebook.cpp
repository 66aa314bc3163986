// SPDX-License-Identifier: Apache-2.0
#include "weights/formats/codebook.hpp"

namespace lemma::weights::formats {
namespace {

// Starting scales put the extreme element at these places. The table is densest near zero, so
// scales that clip pay off only a little below its end, and larger ones up to its third value.
constexpr std::array kPlaces = {-145.0, -136.0, -127.0, -118.0, -110.0, -104.0,
                                -96.0,  96.0,   104.0,  113.0,  122.0,  131.0};

}  // namespace

double codebook_error(const NearestNibble& nearest, std::span<const float> x,
                      std::span<const float> w, double scale) noexcept {
  const double inverse = scale != 0 ? 1 / scale : 0;
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = x[i] - scale * nearest.value(x[i] * inverse);
    sum += w[i] * difference * difference;
  }
  return sum;
}

double IQ4Codes::fit(std::span<const float> x, std::span<const float> w) noexcept {
  double extreme = 0;
  for (const float v : x) {
    if (std::fabs(v) > std::fabs(extreme)) extreme = v;
  }
  if (extreme == 0) return 0;
  double best = extreme / kReach, best_error = error(x, w, best);
  for (const double place : kPlaces) {
    const double inverse = place / extreme;
    double qq = 0, qx = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double q = nearest(x[i], inverse), wq = w[i] * q;
      qq += wq * q, qx += wq * x[i];
    }
    const double candidate = qx / qq;  // no value is 0
    const double candidate_error = error(x, w, candidate);
    if (candidate_error < best_error) best = candidate, best_error = candidate_error;
  }
  return best;
}

}  // namespace lemma::weights::formats
