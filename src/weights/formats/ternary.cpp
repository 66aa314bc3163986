// SPDX-License-Identifier: Apache-2.0
#include "weights/formats/ternary.hpp"

namespace lemma::weights::formats {

double fit_ternary(std::span<const float> x, std::span<const float> w) noexcept {
  constexpr int kThresholds = 32;
  const double a = largest_magnitude_of(x);
  double best = a, best_gain = -1;
  for (int t = 1; t < kThresholds; ++t) {
    const double threshold = a * t / kThresholds;
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double magnitude = std::fabs(double{x[i]});
      if (magnitude < threshold) continue;
      sum += w[i] * magnitude, count += w[i];
    }
    if (!(count > 0)) continue;
    // What the chosen elements' squares lose: sum of w x^2 - sum of w (x - d)^2 at their mean d.
    const double gain = sum * sum / count;
    if (gain > best_gain) best = sum / count, best_gain = gain;
  }
  return best;
}

}  // namespace lemma::weights::formats
