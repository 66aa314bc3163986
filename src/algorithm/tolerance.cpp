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

double whole_bound(std::span<const float> w, std::span<const float> x) noexcept {
  LEMMA_CHECK(w.size() == x.size());
  constexpr std::size_t kBlock = 128;
  double most = 0.0, variance = 0.0;
  for (std::size_t begin = 0; begin < x.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, x.size());
    double largest_w = 0.0, largest_x = 0.0;
    for (std::size_t i = begin; i < end; ++i) {
      largest_w = std::max(largest_w, std::abs(double(w[i])));
      largest_x = std::max(largest_x, std::abs(double(x[i])));
    }
    const double half_w = largest_w / 8190.0, half_x = largest_x / 8190.0;
    for (std::size_t i = begin; i < end; ++i) {
      const double of_x = std::abs(double(w[i])) * half_x, of_w = std::abs(double(x[i])) * half_w;
      most += of_x + of_w + half_x * half_w;
      variance += (of_x * of_x + of_w * of_w) / 3.0;
    }
  }
  return std::fmin(6.0 * std::sqrt(variance), most);
}

double bf16_bound(std::span<const float> w, std::span<const float> x, bool both) noexcept {
  LEMMA_CHECK(w.size() == x.size());
  const auto half_step = [](float v) {  // of numbers with eight bits that are as large as v
    return v == 0.f || !std::isfinite(v) ? 0.0 : std::ldexp(1.0, std::ilogb(v) - 8);
  };
  double most = 0.0, variance = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double of_x = std::abs(double(w[i])) * half_step(x[i]);
    const double of_w = both ? std::abs(double(x[i])) * half_step(w[i]) : 0.0;
    most += of_x + of_w;
    variance += (of_x * of_x + of_w * of_w) / 3.0;
  }
  return std::fmin(6.0 * std::sqrt(variance), most);
}

}  // namespace lemma::algorithm::tolerance
