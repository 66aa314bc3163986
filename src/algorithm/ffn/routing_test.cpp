// SPDX-License-Identifier: Apache-2.0
#include "algorithm/ffn/routing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "algorithm/attention/test_rows.hpp"

namespace lemma::algorithm {
namespace {

using test::changed;
using test::expect_refused;
using test::Ids;
using test::kInfinity;
using test::random_row;
using test::Row;
using Spec = RoutingSpec;

Spec scored(RouteScore score, std::uint32_t experts, std::uint32_t chosen) {
  Spec spec;
  spec.score = score;
  spec.experts = experts;
  spec.chosen = chosen;
  return spec;
}

struct Routes {
  bool ok = false;
  Ids ids;
  Row weights;
};

Routes routed(const Spec& spec, const RouteInputs& inputs) {
  Routes routes{false, Ids(spec.chosen), Row(spec.chosen)};
  Row scratch(spec.scratch_size(), std::nanf(""));
  routes.ok = route(spec, inputs, scratch, routes.ids, routes.weights);
  return routes;
}

Routes routed(const Spec& spec, const Row& logits, const Row& correction = {}) {
  return routed(spec, RouteInputs{logits, correction, {}, {}});
}

float sum(const Row& row) {
  return std::accumulate(row.begin(), row.end(), 0.f);
}

TEST(Routing, CorrectsTheChoiceAndNotTheWeight) {
  Spec spec = scored(RouteScore::kSigmoid, 3, 2);
  spec.correction = spec.normalize = true;
  spec.scale = 2.f;
  const Routes routes = routed(spec, {0, 1, -1}, {1, 0, 0});
  ASSERT_TRUE(routes.ok);
  EXPECT_EQ(routes.ids, (Ids{0, 1}));
  EXPECT_NEAR(routes.weights[0], 0.5f / (0.5f + 0.731059f) * 2.f, 1e-6f);
  EXPECT_NEAR(sum(routes.weights), 2.f, 1e-6f);
}

TEST(Routing, BySoftmaxKeepsTheWholeMassOrRenormalises) {
  const Row logits = {0, 2, 1};
  Spec spec = scored(RouteScore::kSoftmax, 3, 2);
  const Routes whole = routed(spec, logits);
  EXPECT_EQ(whole.ids, (Ids{1, 2}));
  const float e = std::exp(1.f);
  EXPECT_NEAR(sum(whole.weights), (e * e + e) / (e * e + e + 1), 1e-6f);
  spec.normalize = true;
  const Routes again = routed(spec, logits);
  const Routes chosen = routed(scored(RouteScore::kSoftmaxOverChosen, 3, 2), logits);
  EXPECT_NEAR(sum(again.weights), 1.f, 1e-6f);
  EXPECT_NEAR(sum(chosen.weights), 1.f, 1e-6f);
  test::expect_near(again.weights, chosen.weights, tolerance::kRoute);
}

TEST(Routing, GivesEqualLogitsToTheLowestIds) {
  for (const RouteScore score : {RouteScore::kSoftmax, RouteScore::kSoftmaxOverChosen,
                                 RouteScore::kSigmoid, RouteScore::kSqrtSoftplus}) {
    EXPECT_EQ(routed(scored(score, 7, 4), Row(7, 0.25f)).ids, (Ids{0, 1, 2, 3}));
  }
  EXPECT_EQ(routed(scored(RouteScore::kSoftmax, 2, 1), {-0.f, 0.f}).ids, (Ids{0}));
}

TEST(Routing, BySqrtSoftplusGivesItsNumbers) {
  const Routes routes = routed(scored(RouteScore::kSqrtSoftplus, 3, 3), {0, 1, 0.3f});
  EXPECT_EQ(routes.ids, (Ids{1, 2, 0}));
  EXPECT_NEAR(routes.weights[0], 1.145976f, 1e-6f);
  EXPECT_NEAR(routes.weights[1], 0.924313426f, 1e-6f);
  EXPECT_NEAR(routes.weights[2], 0.832555f, 1e-6f);
}

Row logits_of(const Row& probabilities) {
  Row logits;
  for (const float p : probabilities) logits.push_back(std::log(p / (1.f - p)));
  return logits;
}

TEST(Routing, TakesOnlyExpertsOfTheBestGroups) {
  Spec spec = scored(RouteScore::kSigmoid, 4, 2);
  spec.groups = 2;
  const Routes routes = routed(spec, logits_of({0.9f, 0.1f, 0.6f, 0.6f}));
  ASSERT_TRUE(routes.ok);
  EXPECT_EQ(routes.ids, (Ids{2, 3})) << "1.2 beats 1.0, although expert 0 is the best of all";
  spec.group_best = 1;
  EXPECT_EQ(routed(spec, logits_of({0.9f, 0.1f, 0.6f, 0.6f})).ids, (Ids{0, 1}));
}

TEST(Routing, NeverTakesAnExpertOfADroppedGroup) {
  // Keys of kept experts are all negative here; a dropped one must not win with a zero.
  Spec spec = scored(RouteScore::kSigmoid, 6, 2);
  spec.groups = 3;
  spec.correction = true;
  const Routes routes = routed(spec, Row(6, 0.f), {-9, -9, -2, -3, -5, -5});
  EXPECT_EQ(routes.ids, (Ids{2, 3}));
}

TEST(Routing, GivesEqualGroupsToTheLowest) {
  Spec spec = scored(RouteScore::kSigmoid, 8, 2);
  spec.groups = 4;
  EXPECT_EQ(routed(spec, Row(8, 1.f)).ids, (Ids{0, 1}));
  spec.kept_groups = 4;
  Row logits = random_row(8, 3);
  EXPECT_EQ(routed(spec, logits).ids, routed(scored(RouteScore::kSigmoid, 8, 2), logits).ids)
      << "all groups kept is no groups";
}

TEST(Routing, ByATableTakesItsIdsInItsOrderAndWeighsThem) {
  Spec spec = scored(RouteScore::kSqrtSoftplus, 4, 2);
  spec.hashed = spec.normalize = true;
  const Ids row = {3, 1};
  for (const Row& logits : {Row{9, 0, 9, 1}, Row{9, 1, 9, 0}}) {
    const Routes routes = routed(spec, RouteInputs{logits, {}, {}, row});
    ASSERT_TRUE(routes.ok);
    EXPECT_EQ(routes.ids, row);
    const float a = logits[3] == 1.f ? 1.145976f : 0.832555f;
    EXPECT_NEAR(routes.weights[0], a / (1.145976f + 0.832555f), 1e-6f);
  }
}

TEST(Routing, BySoftmaxDoesNotSeeAConstantAndBySigmoidDoes) {
  const Row logits = random_row(8, 4);
  Row shifted = logits;
  for (float& l : shifted) l += 3.f;
  for (const RouteScore score : {RouteScore::kSoftmax, RouteScore::kSigmoid}) {
    Spec spec = scored(score, 8, 3);
    spec.normalize = true;
    const Row a = routed(spec, logits).weights, b = routed(spec, shifted).weights;
    float apart = 0.f;
    for (std::size_t i = 0; i < 3; ++i) apart = std::max(apart, std::abs(a[i] - b[i]));
    if (score == RouteScore::kSoftmax) {
      EXPECT_LT(apart, 1e-6f);
    } else {
      EXPECT_GT(apart, 1e-2f);
    }
  }
}

TEST(Routing, DividesByTheSumWithItsFloorOrItsEps) {
  Spec spec = scored(RouteScore::kSigmoid, 2, 2);
  spec.normalize = true;
  const Row tiny = {-12.f, -12.f};  // scores of 6.1e-6 each
  spec.sum_floor = 6.1e-5f;
  EXPECT_NEAR(sum(routed(spec, tiny).weights), 2.f * 6.14417e-6f / 6.1e-5f, 1e-5f);
  EXPECT_NEAR(sum(routed(spec, {1, 1}).weights), 1.f, 1e-6f) << "the floor is not added";
  spec.sum_floor = 0.f;
  spec.sum_eps = 1e-20f;
  EXPECT_NEAR(sum(routed(spec, tiny).weights), 1.f, 1e-6f);
  EXPECT_EQ(sum(routed(spec, {-200.f, -200.f}).weights), 0.f) << "and a sum of zero gives zero";
  spec.sum_eps = 0.f;
  EXPECT_FALSE(routed(spec, {-200.f, -200.f}).ok) << "0 / 0 is refused";
}

TEST(Routing, ScalesEachExpertLast) {
  Spec spec = scored(RouteScore::kSoftmax, 3, 2);
  spec.normalize = spec.scale_per_expert = true;
  const Row logits = {0, 1, 1}, scales = {100, 10, 1};
  const Routes routes = routed(spec, RouteInputs{logits, {}, scales, {}});
  EXPECT_EQ(routes.ids, (Ids{1, 2}));
  EXPECT_NEAR(routes.weights[0], 5.f, 1e-5f);
  EXPECT_NEAR(routes.weights[1], 0.5f, 1e-6f);
}

TEST(Routing, RanksScoresThatUnderflowByTheirLogits) {
  const Routes routes = routed(scored(RouteScore::kSoftmax, 3, 2), {-300.f, 0.f, -200.f});
  EXPECT_EQ(routes.ids, (Ids{1, 2})) << "both probabilities are 0 in f32";
}

TEST(Routing, RefusesWhatCannotBeCompared) {
  const float nan = std::nanf("");
  for (const RouteScore score : {RouteScore::kSoftmax, RouteScore::kSoftmaxOverChosen,
                                 RouteScore::kSigmoid, RouteScore::kSqrtSoftplus}) {
    const Spec spec = scored(score, 3, 2);
    for (std::size_t at = 0; at < 3; ++at) {
      Row logits = {1, 2, 3};
      logits[at] = nan;
      EXPECT_FALSE(routed(spec, logits).ok);
      logits[at] = kInfinity;
      EXPECT_FALSE(routed(spec, logits).ok);
      logits[at] = -kInfinity;
      const Routes never = routed(spec, logits);
      EXPECT_TRUE(never.ok);
      EXPECT_EQ(std::count(never.ids.begin(), never.ids.end(), at), 0);
    }
    EXPECT_FALSE(routed(spec, {1, -kInfinity, -kInfinity}).ok) << "one candidate for two places";
    EXPECT_FALSE(routed(spec, Row(3, -kInfinity)).ok);
  }
  Spec corrected = scored(RouteScore::kSigmoid, 2, 1);
  corrected.correction = true;
  EXPECT_FALSE(routed(corrected, {0, 0}, {0, nan}).ok);
  Spec scaled = scored(RouteScore::kSigmoid, 1, 1);
  scaled.scale_per_expert = true;
  EXPECT_FALSE(routed(scaled, RouteInputs{Row{0}, {}, Row{nan}, {}}).ok);
}

TEST(Routing, RefusesSpecsThatMakeNoSense) {
  const Spec spec = scored(RouteScore::kSigmoid, 8, 2);
  EXPECT_NO_THROW(spec.validate());
  expect_refused(changed(spec, &Spec::experts, 0u), "experts");
  expect_refused(changed(spec, &Spec::experts, 65537u), "experts");
  expect_refused(changed(spec, &Spec::chosen, 0u), "chosen");
  expect_refused(changed(spec, &Spec::chosen, 9u), "chosen");
  expect_refused(changed(spec, &Spec::groups, 3u), "groups");
  expect_refused(changed(spec, &Spec::kept_groups, 2u), "kept groups");
  expect_refused(changed(changed(spec, &Spec::chosen, 3u), &Spec::groups, 4u), "kept groups");
  expect_refused(changed(spec, &Spec::group_best, 3u), "group best");
  expect_refused(changed(changed(spec, &Spec::chosen, 1u), &Spec::groups, 8u), "group best");
  expect_refused(changed(spec, &Spec::scale, 0.f), "scale");
  expect_refused(changed(spec, &Spec::scale, kInfinity), "scale");
  expect_refused(changed(spec, &Spec::sum_eps, 1e-20f), "sum eps");
  expect_refused(changed(spec, &Spec::sum_floor, 1e-5f), "sum floor");
  expect_refused(changed(changed(spec, &Spec::hashed, true), &Spec::correction, true), "hashed");
  expect_refused(
      changed(changed(spec, &Spec::score, RouteScore::kSoftmaxOverChosen), &Spec::groups, 2u),
      "groups");
}

std::string table_error(const Spec& spec, const Ids& table) {
  try {
    validate_hash_table(spec, table);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadFile);
    return error.what();
  }
  return {};
}

TEST(RoutingTable, IsRefusedForIdsThatAreNoExpertsOrComeTwice) {
  const Spec spec = scored(RouteScore::kSqrtSoftplus, 4, 2);
  EXPECT_EQ(table_error(spec, {0, 1, 3, 2, 1, 0}), "");
  EXPECT_NE(table_error(spec, {0, 1, 4, 2}).find("token 1"), std::string::npos);
  EXPECT_NE(table_error(spec, {0, 1, 2, 2}).find("2 twice"), std::string::npos);
  EXPECT_NE(table_error(spec, {0, 1, 2}).find("3 entries"), std::string::npos);
}

TEST(RouteGroups, ListsEachExpertsRowsInOrder) {
  Ids offsets(4), rows(4);
  Row weights(4);
  group_routes(3, 2, Ids{2, 0, 2, 1}, Row{.7f, .3f, .6f, .4f}, {offsets, rows, weights});
  EXPECT_EQ(offsets, (Ids{0, 1, 2, 4}));
  EXPECT_EQ(rows, (Ids{0, 1, 0, 1}));
  EXPECT_EQ(weights, (Row{.3f, .4f, .7f, .6f}));
}

TEST(RouteGroups, HoldEveryRouteOnceAndLeaveIdleExpertsEmpty) {
  constexpr std::uint32_t kExperts = 11, kChosen = 3, kRows = 20;
  const Spec spec = scored(RouteScore::kSigmoid, kExperts, kChosen);
  Ids ids;
  Row weights;
  for (unsigned t = 0; t < kRows; ++t) {
    Row logits = random_row(kExperts, t);
    logits[4] = -kInfinity;
    const Routes routes = routed(spec, logits);
    ids.insert(ids.end(), routes.ids.begin(), routes.ids.end());
    weights.insert(weights.end(), routes.weights.begin(), routes.weights.end());
  }
  Ids offsets(kExperts + 1), rows(ids.size());
  Row grouped(ids.size());
  group_routes(kExperts, kChosen, ids, weights, {offsets, rows, grouped});
  EXPECT_EQ(offsets.back(), kRows * kChosen);
  EXPECT_EQ(offsets[4], offsets[5]);
  for (std::uint32_t e = 0; e < kExperts; ++e) {
    for (std::uint32_t i = offsets[e]; i < offsets[e + 1]; ++i) {
      if (i > offsets[e]) {
        EXPECT_LT(rows[i - 1], rows[i]);
      }
      const auto first = ids.begin() + rows[i] * kChosen;
      const auto slot = std::find(first, first + kChosen, e);
      ASSERT_NE(slot, first + kChosen);
      EXPECT_EQ(grouped[i], weights[std::size_t(slot - ids.begin())]);
    }
  }
}

}  // namespace
}  // namespace lemma::algorithm
