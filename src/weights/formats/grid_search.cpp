// SPDX-License-Identifier: Apache-2.0
#include "weights/formats/grid_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace lemma::weights::formats {

GridSearch::GridSearch(std::span<const std::uint16_t> points, std::size_t dimensions,
                       std::span<const std::int8_t> levels) noexcept
    : dimensions_(dimensions), level_count_(levels.size()), point_count_(points.size()) {
  for (std::size_t l = 0; l < levels.size(); ++l) levels_[l] = static_cast<float>(levels[l]);
  for (std::size_t l = 0; l + 1 < levels.size(); ++l) {
    midpoints_[l] = (levels_[l] + levels_[l + 1]) / 2;
  }
  const unsigned bits = levels.size() > 4 ? 3 : 2;
  for (std::size_t p = 0; p < points.size(); ++p) {
    for (std::size_t i = 0; i < dimensions; ++i) {
      points_[p * kMaxDimensions + i] = levels_[points[p] >> (bits * i) & ((1u << bits) - 1)];
    }
  }
  std::size_t combinations = 1;
  for (std::size_t i = 0; i < dimensions; ++i) combinations *= levels.size();
  for (std::size_t c = 0; c < combinations; ++c) list_neighbours(c);
}

void GridSearch::list_neighbours(std::size_t combination) noexcept {
  std::array<float, kMaxDimensions> centre;
  std::size_t rest = combination;
  for (std::size_t i = 0; i < dimensions_; ++i, rest /= level_count_) {
    centre[i] = levels_[rest % level_count_];
  }
  std::array<std::pair<float, std::uint16_t>, kMaxPoints> by_distance;
  for (std::size_t p = 0; p < point_count_; ++p) {
    float distance = 0;
    for (std::size_t i = 0; i < dimensions_; ++i) {
      const float difference = centre[i] - point(p)[i];
      distance += difference * difference;
    }
    by_distance[p] = {distance, static_cast<std::uint16_t>(p)};
  }
  const auto first = by_distance.begin();
  std::partial_sort(first, first + kListed, first + static_cast<std::ptrdiff_t>(point_count_));
  for (std::size_t n = 0; n < kListed; ++n) {
    listed_[combination * kListed + n] = by_distance[n].second;
  }
  in_grid_[combination] = by_distance[0].first == 0.f;
}

std::size_t GridSearch::level_below(float x) const noexcept {
  std::size_t level = 0;
  for (std::size_t l = 0; l + 1 < level_count_; ++l) level += x > midpoints_[l] ? 1 : 0;
  return level;
}

std::size_t GridSearch::nearest(const float* x, const float* w) const noexcept {
  std::size_t combination = 0;
  for (std::size_t i = dimensions_; i-- > 0;) {
    combination = combination * level_count_ + level_below(x[i]);
  }
  const std::uint16_t* const list = &listed_[combination * kListed];
  if (in_grid_[combination]) return list[0];  // every coordinate has its nearest level
  std::size_t best = list[0];
  float best_error = std::numeric_limits<float>::infinity();
  for (std::size_t n = 0; n < kListed; ++n) {
    const float* const candidate = point(list[n]);
    float error = 0;
    for (std::size_t i = 0; i < dimensions_; ++i) {
      const float difference = x[i] - candidate[i];
      error += w[i] * difference * difference;
    }
    if (error < best_error) best = list[n], best_error = error;
  }
  return best;
}

std::size_t GridSearch::least_worst(const float* x) const noexcept {
  std::size_t best = 0;
  float best_error = std::numeric_limits<float>::infinity();
  for (std::size_t p = 0; p < point_count_; ++p) {
    float error = 0;
    for (std::size_t i = 0; i < dimensions_; ++i) {
      error = std::max(error, std::fabs(x[i] - point(p)[i]));
    }
    if (error < best_error) best = p, best_error = error;
  }
  return best;
}

}  // namespace lemma::weights::formats
