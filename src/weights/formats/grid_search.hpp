// SPDX-License-Identifier: Apache-2.0
// GridSearch: the point of a grid that is nearest to some coordinates, for the encoders of the IQ
// formats. Most combinations of levels are not in a grid, so for each of them the points around it
// are listed once; a query rounds its coordinates to levels and compares the points on that list.
// Immutable once made and safe to share; a few hundred KB, made when a format is first encoded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lemma::weights::formats {

class GridSearch {
 public:
  /// `points` are packed as grids.hpp says; `levels` ascend.
  GridSearch(std::span<const std::uint16_t> points, std::size_t dimensions,
             std::span<const std::int8_t> levels) noexcept;

  std::size_t dimensions() const noexcept { return dimensions_; }
  /// The coordinates of a point.
  const float* point(std::size_t index) const noexcept { return &points_[index * kMaxDimensions]; }
  /// The largest level.
  float reach() const noexcept { return levels_[level_count_ - 1]; }

  /// The listed point of least sum of w (x - point)^2.
  std::size_t nearest(const float* x, const float* w) const noexcept;
  /// The point of the whole grid whose farthest coordinate is nearest.
  std::size_t least_worst(const float* x) const noexcept;

 private:
  static constexpr std::size_t kMaxDimensions = 8, kMaxPoints = 2048, kMaxLevels = 8;
  static constexpr std::size_t kCombinations = 6561;  ///< 3^8, and 8^4 = 4096
  /// Points listed for a combination. Beyond 16 the errors fall by less than 0.1 %.
  static constexpr std::size_t kListed = 16;

  std::size_t level_below(float x) const noexcept;
  void list_neighbours(std::size_t combination) noexcept;

  std::size_t dimensions_, level_count_, point_count_;
  std::array<float, kMaxLevels> levels_{};
  std::array<float, kMaxLevels> midpoints_{};  ///< between a level and the next
  std::array<float, kMaxPoints * kMaxDimensions> points_{};
  std::array<std::uint16_t, kCombinations * kListed> listed_{};
  std::array<bool, kCombinations> in_grid_{};  ///< the first listed point is the combination itself
};

}  // namespace lemma::weights::formats
