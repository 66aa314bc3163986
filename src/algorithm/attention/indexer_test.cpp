// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/indexer.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithm/attention/test_rows.hpp"

namespace lemma::algorithm {
namespace {

using namespace test;

/// What `rows` choose for one query; empty also where nothing could be chosen.
std::optional<Ids> choose(const IndexerSpec& spec, const Row& query, const Row& weights,
                          const Row& keys) {
  const auto n = std::uint32_t(keys.size() / spec.dim);
  Row scores(n);
  Ids ids(std::min(n, spec.top_k));
  const auto count =
      select_rows(spec, query, weights, n, spec.top_k, rows_of(keys, spec.dim), scores, ids);
  if (!count) return std::nullopt;
  ids.resize(*count);
  return ids;
}

TEST(IndexScore, CutsEachHeadOffBeforeItIsWeighed) {
  const IndexerSpec spec{.heads = 2, .dim = 2, .top_k = 1};
  const Row query = {10, 1, -9, 1}, weights = {1, 1};
  // Over sqrt(2) heads and sqrt(2) dims: 10 and 1 + 1, where one sum of queries would give 1 and 2.
  EXPECT_FLOAT_EQ(index_score(spec, query, weights, Row{1, 0}), 10.f / 2.f);
  EXPECT_FLOAT_EQ(index_score(spec, query, weights, Row{0, 1}), 2.f / 2.f);
  EXPECT_EQ(choose(spec, query, weights, {1, 0, 0, 1}), (Ids{0}));
}

TEST(IndexScore, MayBeNegativeByItsWeights) {
  const IndexerSpec spec{.heads = 1, .dim = 1, .top_k = 1};
  EXPECT_EQ(index_score(spec, Row{2}, Row{-3}, Row{1}), -6.f);
  EXPECT_EQ(choose(spec, {2}, {-3}, {1, -1}), (Ids{1}));  // 0 is more than -6
}

TEST(IndexScore, HasOnlyOneZero) {
  const IndexerSpec spec{.heads = 1, .dim = 1, .top_k = 1};
  EXPECT_FALSE(std::signbit(index_score(spec, Row{2}, Row{-3}, Row{-1})));
}

TEST(SelectRows, TakesTheLowestOfEqualScores) {
  const IndexerSpec spec{.heads = 2, .dim = 1, .top_k = 3};
  // Zeros of both signs: from a negative weight and from a positive one.
  EXPECT_EQ(choose(spec, {1, -1}, {-1, 1}, {0, 0, 0, 0, 0}), (Ids{0, 1, 2}));
  EXPECT_EQ(choose(spec, {1, 1}, {1, 1}, {4, 4, 4, 4, 4}), (Ids{0, 1, 2}));
}

TEST(SelectRows, AscendsByIndexNotByScore) {
  const IndexerSpec spec{.heads = 1, .dim = 1, .top_k = 2};
  EXPECT_EQ(choose(spec, {1}, {1}, {3, 1, 7}), (Ids{0, 2}));
}

TEST(SelectRows, TakesAllOfNoMoreThanK) {
  const IndexerSpec spec{.heads = 1, .dim = 1, .top_k = 4};
  EXPECT_EQ(choose(spec, {1}, {1}, {3, 1, 7}), (Ids{0, 1, 2}));
  EXPECT_EQ(choose(spec, {1}, {1}, {3, 1, 7, 0}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(choose(spec, {1}, {1}, {}), (Ids{}));
}

TEST(SelectRows, ComputesNoScoreWhereAllAreTaken) {
  const IndexerSpec spec{.heads = 1, .dim = 1, .top_k = 2};
  EXPECT_EQ(choose(spec, {1}, {1}, {std::nanf(""), 1}), (Ids{0, 1}));
}

TEST(SelectRows, RefusesScoresThatAreNotFinite) {
  const IndexerSpec spec{.heads = 1, .dim = 1, .top_k = 1};
  for (const float bad : {std::nanf(""), kInfinity}) {
    EXPECT_FALSE(choose(spec, {1}, {1}, {1, bad, 2}).has_value());
    EXPECT_FALSE(choose(spec, {1}, {bad}, {1, 2}).has_value());
  }
  EXPECT_FALSE(choose(spec, {1}, {-1}, {1, kInfinity, 2}).has_value());
}

TEST(IndexerSpec, NamesTheWrongField) {
  const IndexerSpec good{.heads = 4, .dim = 128, .rope_dim = 64, .top_k = 8};
  EXPECT_NO_THROW(good.validate());
  EXPECT_NO_THROW(changed(good, &IndexerSpec::rope_dim, 0u).validate());
  expect_refused(changed(good, &IndexerSpec::heads, 0u), "heads");
  expect_refused(changed(good, &IndexerSpec::dim, 0u), "dim");
  expect_refused(changed(good, &IndexerSpec::dim, 0x40000000u), "dim");
  expect_refused(changed(good, &IndexerSpec::rope_dim, 63u), "rope_dim");
  expect_refused(changed(good, &IndexerSpec::rope_dim, 130u), "rope_dim");
  expect_refused(changed(good, &IndexerSpec::top_k, 0u), "top_k");
}

}  // namespace
}  // namespace lemma::algorithm
