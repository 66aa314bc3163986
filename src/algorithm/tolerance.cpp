// SPDX-License-Identifier: Apache-2.0
#include "algorithm/tolerance.hpp"

#include <algorithm>
#include <cstddef>

#include "base/check.hpp"

namespace lemma::algorithm::tolerance {

double int8_bound(std::span<const float> w, std::span<const float> x) noexcept {
  LEMMA_CHECK(w.size() == x.size());
  constexpr std::size_t kGroup = 32;
  double variance = 0.0;
  for (std::size_t begin = 0; begin < x.size(); begin += kGroup) {
    const std::size_t end = std::min(begin + kGroup, x.size());
    double largest = 0.0, squares = 0.0;
    for (std::size_t i = begin; i < end; ++i) {
      largest = std::max(largest, std::abs(double(x[i])));
      squares += double(w[i]) * double(w[i]);
    }
    const double step = largest / 127.0;
    variance += squares * step * step / 12.0;
  }
  return 6.0 * std::sqrt(variance);
}

}  // namespace lemma::algorithm::tolerance
