// SPDX-License-Identifier: Apache-2.0
#include "eval/distance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"

namespace lemma::eval {

void RowDistance::add(std::span<const float> got, std::span<const float> want, const Row& row) {
  LEMMA_CHECK(got.size() == want.size() && (row.slack.empty() || row.slack.size() == want.size()));
  double largest_want = row.largest;
  for (const float w : want) largest_want = std::max(largest_want, std::abs(double(w)));

  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(double(got[i]) - double(want[i]));
    if (difference == 0) continue;
    const double allowed = row.scale * (tolerance_.relative * std::abs(double(want[i])) +
                                        tolerance_.absolute_of_max * largest_want) +
                           (row.slack.empty() ? 0.0 : row.slack[i]);
    // A NaN compares as false: it must count as the worst there is.
    const bool finite = std::isfinite(difference);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    largest = std::max(largest, finite ? difference : kInfinity);
    worst = std::max(worst, finite && allowed > 0 ? difference / allowed : kInfinity);
    squared_difference_ += finite ? difference * difference : kInfinity;
  }
  for (const float w : want) squared_want_ += double(w) * double(w);
  if (largest > 0) {
    max_error_ = std::max(max_error_, largest_want > 0 ? largest / largest_want
                                                       : std::numeric_limits<double>::infinity());
  }
  if (worst > of_tolerance_) {
    of_tolerance_ = worst;
    worst_position_ = row.position;
  }
}

double RowDistance::rms_error() const noexcept {
  if (squared_difference_ == 0) return 0;
  return std::sqrt(squared_difference_ / squared_want_);
}

double log_sum_exp(std::span<const float> logits) noexcept {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float x : logits) largest = std::max(largest, double(x));
  double sum = 0;
  for (const float x : logits) sum += std::exp(double(x) - largest);
  return largest + std::log(sum);
}

double divergence(std::span<const float> got, double got_total, std::span<const float> want,
                  double want_total) noexcept {
  double kl = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double log_p = double(want[i]) - want_total;
    const double p = std::exp(log_p);
    if (p > 0) kl += p * (log_p - (double(got[i]) - got_total));
  }
  return kl;
}

std::int32_t best_token(std::span<const float> logits) noexcept {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void LogitsDistance::add(std::span<const float> got, std::span<const float> want) {
  LEMMA_CHECK(got.size() == want.size() && !want.empty());
  const double kl = divergence(got, log_sum_exp(got), want, log_sum_exp(want));
  const std::int32_t best_got = best_token(got), best_want = best_token(want);
  ++positions_;
  sum_kl_ += kl;
  max_kl_ = std::isnan(kl) ? kl : std::max(max_kl_, kl);
  if (best_got == best_want) {
    ++same_best_;
  } else {
    const double gap = double(want[std::size_t(best_want)]) - double(want[std::size_t(best_got)]);
    largest_gap_ = std::max(largest_gap_, gap);
  }
}

}  // namespace lemma::eval
