// SPDX-License-Identifier: Apache-2.0
#include "algorithm/topk.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace lemma::algorithm {
namespace {

using Scores = std::vector<float>;
using Ids = std::vector<std::uint32_t>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Ids best(const Scores& scores, std::size_t k, TopkOrder order = TopkOrder::kRank) {
  Ids ids(std::min(k, scores.size()), 99u);
  const auto count = topk(scores, k, order, ids);
  EXPECT_TRUE(count.has_value());
  ids.resize(count.value_or(0));
  return ids;
}

TEST(Topk, RanksByScore) {
  EXPECT_EQ(best({1, 4, -2, 3}, 3), (Ids{1, 3, 0}));
}

TEST(Topk, GivesTheSameSetByIndex) {
  EXPECT_EQ(best({1, 4, -2, 3}, 3, TopkOrder::kAscending), (Ids{0, 1, 3}));
}

TEST(Topk, BreaksTiesByTheLowestIndex) {
  EXPECT_EQ(best({2, 5, 2, 5, 2}, 3), (Ids{1, 3, 0}));
  EXPECT_EQ(best({7, 7, 7, 7}, 2), (Ids{0, 1}));
}

TEST(Topk, TakesBothZerosForOne) {
  EXPECT_EQ(best({-0.f, 0.f, -0.f, 0.f}, 3), (Ids{0, 1, 2}));
  EXPECT_EQ(best({-1.f, -0.f, 0.f, -0.f}, 2, TopkOrder::kAscending), (Ids{1, 2}));
}

TEST(Topk, TakesAllWhenThereAreFewerThanK) {
  EXPECT_EQ(best({1, 2}, 5), (Ids{1, 0}));
  EXPECT_EQ(best({}, 5), (Ids{}));
  EXPECT_EQ(best({1, 2}, 0), (Ids{}));
}

TEST(Topk, NeverChoosesMinusInfinity) {
  EXPECT_EQ(best({-kInfinity, -1e38f, -kInfinity}, 3), (Ids{1}));
}

TEST(Topk, PutsForcedChoicesFirst) {
  EXPECT_EQ(best({3e38f, kInfinity, 1, kInfinity}, 3), (Ids{1, 3, 0}));
}

TEST(Topk, ReportsANaNAnywhere) {
  for (std::size_t at = 0; at < 4; ++at) {
    Scores scores = {1, 2, 3, 4};
    scores[at] = std::nanf("");
    Ids ids(2);
    EXPECT_FALSE(topk(scores, 2, TopkOrder::kRank, ids).has_value()) << at;
    EXPECT_FALSE(comparable(scores));
  }
}

TEST(Topk, AgreesWithSortingTheWholeRow) {
  std::mt19937 generator(1);
  for (std::size_t n = 1; n <= 40; ++n) {
    Scores scores(n);
    for (float& score : scores) score = float(generator() % 7) - 3.f;  // many ties
    Ids sorted(n);
    std::iota(sorted.begin(), sorted.end(), 0u);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
    for (std::size_t k = 0; k <= n; ++k) {
      Ids want(sorted.begin(), sorted.begin() + std::ptrdiff_t(k));
      EXPECT_EQ(best(scores, k), want);
      std::sort(want.begin(), want.end());
      EXPECT_EQ(best(scores, k, TopkOrder::kAscending), want);
    }
  }
}

TEST(Comparable, AdmitsMinusInfinityOnly) {
  EXPECT_TRUE(comparable(Scores{-kInfinity, 0, 3e38f}));
  EXPECT_FALSE(comparable(Scores{0, kInfinity}));
  EXPECT_TRUE(comparable(Scores{}));
}

}  // namespace
}  // namespace lemma::algorithm
