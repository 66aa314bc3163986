// SPDX-License-Identifier: Apache-2.0
#include "eval/distance.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lemma::eval {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(RowDistance, MeasuresAgainstTheRowsLargestValue) {
  RowDistance distance({.relative = 0.0, .absolute_of_max = 0.1});
  distance.add(std::vector<float>{1.f, -3.75f}, std::vector<float>{1.f, -4.f}, {.position = 7});
  EXPECT_DOUBLE_EQ(distance.max_error(), 0.25 / 4);
  EXPECT_DOUBLE_EQ(distance.of_tolerance(), 0.25 / (0.1 * 4));
  EXPECT_DOUBLE_EQ(distance.rms_error(), 0.25 / std::sqrt(17.0));
  EXPECT_EQ(distance.worst_position(), 7U);
}

TEST(RowDistance, KeepsTheWorstRow) {
  RowDistance distance({.relative = 0.5, .absolute_of_max = 0.0});
  distance.add(std::vector<float>{3.f}, std::vector<float>{2.f}, {.position = 0});
  distance.add(std::vector<float>{2.f}, std::vector<float>{2.f}, {.position = 1});
  EXPECT_DOUBLE_EQ(distance.of_tolerance(), 1.0);
  EXPECT_EQ(distance.worst_position(), 0U);
}

TEST(RowDistance, ScalesItsToleranceAndAddsTheSlackOfEachElement) {
  RowDistance distance({.relative = 0.1, .absolute_of_max = 0.0});
  const std::vector<double> slack = {0.0, 0.5};
  distance.add(std::vector<float>{2.f, 3.f}, std::vector<float>{2.f, 2.f},
               {.scale = 2.0, .slack = slack});
  EXPECT_DOUBLE_EQ(distance.of_tolerance(), 1.0 / (2.0 * 0.1 * 2.0 + 0.5));
}

TEST(RowDistance, CountsANanAsTheWorstThereIs) {
  RowDistance distance({.relative = 1.0, .absolute_of_max = 1.0});
  distance.add(std::vector<float>{1.f, kNan}, std::vector<float>{1.f, 2.f}, {.position = 3});
  distance.add(std::vector<float>{1.f}, std::vector<float>{1.f}, {.position = 4});
  EXPECT_TRUE(std::isinf(distance.of_tolerance()));
  EXPECT_TRUE(std::isinf(distance.max_error()));
  EXPECT_EQ(distance.worst_position(), 3U);
}

TEST(RowDistance, AllowsNothingWithoutATolerance) {
  RowDistance distance({});
  distance.add(std::vector<float>{0.f}, std::vector<float>{0.f}, {.position = 0});
  EXPECT_EQ(distance.of_tolerance(), 0.0);
  distance.add(std::vector<float>{1e-30f}, std::vector<float>{0.f}, {.position = 1});
  EXPECT_TRUE(std::isinf(distance.of_tolerance()));
}

TEST(RowDistance, MeasuresARowAgainstALargerValueIfToldTo) {
  RowDistance distance({.absolute_of_max = 0.1});
  distance.add(std::vector<float>{0.5f}, std::vector<float>{0.25f}, {.largest = 10});
  EXPECT_DOUBLE_EQ(distance.of_tolerance(), 0.25);
  EXPECT_DOUBLE_EQ(distance.max_error(), 0.025);
}

TEST(LogitsDistance, IsZeroForShiftedLogits) {
  LogitsDistance distance;
  distance.add(std::vector<float>{11.f, 12.f, 13.f}, std::vector<float>{1.f, 2.f, 3.f});
  EXPECT_NEAR(distance.mean_kl(), 0.0, 1e-12);
  EXPECT_EQ(distance.same_best(), 1U);
}

TEST(LogitsDistance, GivesTheDivergenceOfTwoKnownDistributions) {
  LogitsDistance distance;
  const float ln3 = std::log(3.f);
  // want = {3/4, 1/4}, got = {1/4, 3/4}: KL = 1/2 ln 3.
  distance.add(std::vector<float>{0.f, ln3}, std::vector<float>{ln3, 0.f});
  EXPECT_NEAR(distance.mean_kl(), 0.5 * std::log(3.0), 1e-6);
  EXPECT_EQ(distance.same_best(), 0U);
  EXPECT_NEAR(distance.largest_gap(), std::log(3.0), 1e-6);
}

TEST(LogitsDistance, DoesNotHideANan) {
  LogitsDistance distance;
  distance.add(std::vector<float>{kNan, 0.f}, std::vector<float>{1.f, 0.f});
  EXPECT_TRUE(std::isnan(distance.mean_kl()));
  EXPECT_TRUE(std::isnan(distance.max_kl()));
}

TEST(LogSumExp, SurvivesLargeLogits) {
  EXPECT_NEAR(log_sum_exp(std::vector<float>{1e4f, 1e4f}), 1e4 + std::log(2.0), 1e-9);
}

}  // namespace
}  // namespace lemma::eval
