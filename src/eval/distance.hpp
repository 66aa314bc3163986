// SPDX-License-Identifier: Apache-2.0
// Distances between rows of floats and between next-token distributions: how `check` and `bench`
// say how far a backend is from the reference. All sums are f64. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "algorithm/tolerance.hpp"

namespace lemma::eval {

/// Collects rows of one site.
class RowDistance {
 public:
  explicit RowDistance(algorithm::Tolerance tolerance) : tolerance_(tolerance) {}

  struct Row {
    std::uint32_t position = 0;
    /// Stands in for the row's largest value where it is larger.
    double largest = 0;
    /// The row is allowed so many times the tolerance, and `slack` on top for each element (if not
    /// empty).
    double scale = 1.0;
    std::span<const double> slack{};
  };
  /// `got` against `want`, equally long. A NaN or infinity in `got` only is an infinite error.
  void add(std::span<const float> got, std::span<const float> want, const Row& row);

  /// Largest |got - want| of a row over the largest |want| of that row; the worst row.
  double max_error() const noexcept { return max_error_; }
  /// Root of the sum of squared differences over that of the squared wants, over all rows.
  double rms_error() const noexcept;
  /// Largest difference over what the tolerance allows there; up to 1 is within it.
  double of_tolerance() const noexcept { return of_tolerance_; }
  /// Where of_tolerance() was found.
  std::uint32_t worst_position() const noexcept { return worst_position_; }
  algorithm::Tolerance tolerance() const noexcept { return tolerance_; }

 private:
  algorithm::Tolerance tolerance_;
  double max_error_ = 0, of_tolerance_ = 0;
  double squared_difference_ = 0, squared_want_ = 0;
  std::uint32_t worst_position_ = 0;
};

/// Collects next-token distributions given as logits.
class LogitsDistance {
 public:
  void add(std::span<const float> got, std::span<const float> want);

  std::size_t positions() const noexcept { return positions_; }
  /// Positions at which both have the same likeliest token (the lowest id on ties).
  std::size_t same_best() const noexcept { return same_best_; }
  /// KL(want || got) in nats. NaN where `got` is not finite.
  double mean_kl() const noexcept { return positions_ ? sum_kl_ / double(positions_) : 0.0; }
  double max_kl() const noexcept { return max_kl_; }
  /// Where the best tokens differ: the largest gap that `want` has between its best and the other.
  double largest_gap() const noexcept { return largest_gap_; }

 private:
  std::size_t positions_ = 0, same_best_ = 0;
  double sum_kl_ = 0, max_kl_ = 0, largest_gap_ = 0;
};

/// log of the sum of exp(logit), in f64.
double log_sum_exp(std::span<const float> logits) noexcept;

/// KL(want || got) in nats of two rows of logits whose log_sum_exp() are `got_total` and
/// `want_total`. NaN where `got` is not finite.
double divergence(std::span<const float> got, double got_total, std::span<const float> want,
                  double want_total) noexcept;

/// The likeliest token, the lowest id on ties.
std::int32_t best_token(std::span<const float> logits) noexcept;

}  // namespace lemma::eval
