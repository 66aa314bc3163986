// SPDX-License-Identifier: Apache-2.0
#include "runtime/log_probabilities.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace lemma::runtime {
namespace {

TEST(LogProbabilities, AreTheLogSoftmaxInDoublePrecision) {
  const std::vector<float> logits = {1.f, 2.f, 3.f, 2.f};
  const double mass = std::exp(1.) + 2 * std::exp(2.) + std::exp(3.);
  const RowProbabilities row = log_probabilities(logits, 0, 3);
  EXPECT_NEAR(row.chosen, 1. - std::log(mass), 1e-14);
  ASSERT_EQ(row.top.size(), 3u);
  EXPECT_EQ(row.top[0].id, 2);
  EXPECT_EQ(row.top[1].id, 1);  // the lower id of two equals
  EXPECT_EQ(row.top[2].id, 3);
  EXPECT_NEAR(row.top[0].log_probability, 3. - std::log(mass), 1e-14);
}

TEST(LogProbabilities, StayFiniteForLargeLogits) {
  const std::vector<float> logits = {3e4f, 3e4f, -3e4f};
  const RowProbabilities row = log_probabilities(logits, 2, 20);
  EXPECT_NEAR(row.top.at(0).log_probability, -std::log(2.), 1e-11);
  EXPECT_NEAR(row.chosen, -6e4 - std::log(2.), 1e-7);
  EXPECT_EQ(row.top.size(), 3u);
}

}  // namespace
}  // namespace lemma::runtime
