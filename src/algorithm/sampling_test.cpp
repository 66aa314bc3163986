// SPDX-License-Identifier: Apache-2.0
#include "algorithm/sampling.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "lemma/error.hpp"

namespace lemma::algorithm {
namespace {

using Logits = std::vector<float>;
using Ids = std::vector<std::int32_t>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingSpec greedy() {
  return {.temperature = 0.f};
}

std::int32_t choose(const SamplingSpec& spec, const Logits& logits, const Ids& history = {},
                    const std::vector<std::uint8_t>& fence = {}) {
  Random random(1);
  return sample(spec, logits, history, fence, random);
}

std::vector<Candidate> kept(const SamplingSpec& spec, const Logits& logits,
                            const Ids& history = {}) {
  Random random(1);
  SamplingTrace trace;
  sample(spec, logits, history, {}, random, &trace);
  return trace.kept;
}

Ids ids_of(const std::vector<Candidate>& candidates) {
  Ids ids;
  for (const Candidate& c : candidates) ids.push_back(c.id);
  return ids;
}

Ids draws(const SamplingSpec& spec, const Logits& logits, std::uint64_t seed, int n) {
  Random random(seed);
  Ids ids;
  for (int i = 0; i < n; ++i) ids.push_back(sample(spec, logits, {}, {}, random));
  return ids;
}

template <typename Action>
std::string error_of(ErrorKind kind, Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// ---- the generator

TEST(Random, GivesThePublishedNumbersOfASeed) {
  Random bits(12345), floats(12345);
  for (const std::uint64_t want : {10977518812293740004u, 13893246733018840292u,
                                   1412386850724336324u, 13578198927181985541u}) {
    EXPECT_EQ(bits.next(), want);
  }
  for (const float want : {0.595092475f, 0.753154397f, 0.0765656233f, 0.73607558f}) {
    EXPECT_EQ(floats.uniform(), want);
  }
}

TEST(Random, ReplacesTheStateThatWouldStayZero) {
  Random zero(0), replacement(0x9e3779b97f4a7c15u);
  const std::uint64_t first = zero.next();
  EXPECT_NE(first, 0u);
  EXPECT_EQ(first, replacement.next());
}

TEST(Random, StaysBelowOne) {
  Random random(7);
  for (int i = 0; i < 100000; ++i) {
    const float u = random.uniform();
    ASSERT_TRUE(u >= 0.f && u < 1.f);
  }
}

// ---- greedy

TEST(Greedy, TakesTheLowestIdOfTheBest) {
  EXPECT_EQ(choose(greedy(), {1, 3, 2, 3}), 1);
  EXPECT_EQ(choose(greedy(), {-0.f, 0.f}), 0);
  EXPECT_EQ(choose(greedy(), {-kInfinity, -5}), 1);
}

TEST(Greedy, DrawsNothing) {
  Random used(5), fresh(5);
  sample(greedy(), Logits{1, 2}, {}, {}, used);
  EXPECT_EQ(used.next(), fresh.next());
}

TEST(Sampling, DrawsOnceForAnyOtherTemperature) {
  const std::vector<SamplingSpec> specs = {
      {}, {.top_k = 1}, {.top_p = 0.f}, {.min_p = 1.f}, {.temperature = 0.01f}};
  for (const SamplingSpec& spec : specs) {
    Random used(5), fresh(5);
    sample(spec, Logits{1, 2, 0}, {}, {}, used);
    fresh.next();
    EXPECT_EQ(used.next(), fresh.next());
  }
}

// ---- numbers that must not be there

TEST(Sampling, RefusesNaNAndInfinityWhereverTheyStand) {
  for (const SamplingSpec& spec : {greedy(), SamplingSpec{}, SamplingSpec{.top_k = 1}}) {
    for (const float bad : {std::nanf(""), kInfinity}) {
      for (std::size_t i = 0; i < 3; ++i) {
        Logits logits = {1, 2, 3};
        logits[i] = bad;
        const std::string message = error_of(ErrorKind::kNonFinite, [&] { choose(spec, logits); });
        EXPECT_NE(message.find("token " + std::to_string(i)), std::string::npos) << message;
      }
    }
  }
}

TEST(Sampling, RefusesAParameterOutsideItsRangeByName) {
  using Field = float SamplingSpec::*;
  const std::vector<std::pair<const char*, Field>> fields = {
      {"temperature", &SamplingSpec::temperature},
      {"top_p", &SamplingSpec::top_p},
      {"min_p", &SamplingSpec::min_p},
      {"repetition_penalty", &SamplingSpec::repetition_penalty},
      {"presence_penalty", &SamplingSpec::presence_penalty},
      {"frequency_penalty", &SamplingSpec::frequency_penalty}};
  for (const auto& [name, field] : fields) {
    for (const float bad : {std::nanf(""), kInfinity, -kInfinity, -1000.f, 1000.f}) {
      SamplingSpec spec;
      spec.*field = bad;
      const std::string message = error_of(ErrorKind::kUsage, [&] { validate(spec); });
      EXPECT_EQ(message.find(name), 0u) << message;
    }
  }
  for (const auto& [name, field] : fields) {
    if (field == &SamplingSpec::presence_penalty || field == &SamplingSpec::frequency_penalty) {
      continue;
    }
    SamplingSpec spec;
    spec.*field = -1.f;
    EXPECT_THROW(validate(spec), Error) << name;
  }
}

TEST(Sampling, AcceptsEveryLimitOfItsParameters) {
  const std::vector<SamplingSpec> specs = {{},
                                           {.temperature = 0.f},
                                           {.temperature = 1e-45f},
                                           {.top_k = -1},
                                           {.top_k = std::numeric_limits<std::int64_t>::max()},
                                           {.top_k = std::numeric_limits<std::int64_t>::min()},
                                           {.top_p = 0.f},
                                           {.min_p = 1.f},
                                           {.presence_penalty = -2.f},
                                           {.logit_bias = {{1, -kInfinity}, {0, 5.f}}}};
  for (const SamplingSpec& spec : specs) {
    EXPECT_NO_THROW(validate(spec));
    EXPECT_NO_THROW(choose(spec, {1, 2, 3}));
  }
}

TEST(Sampling, RefusesABiasThatIsNoBias) {
  for (const float bad : {std::nanf(""), kInfinity}) {
    SamplingSpec spec{.logit_bias = {{3, bad}}};
    const std::string message = error_of(ErrorKind::kUsage, [&] { validate(spec); });
    EXPECT_NE(message.find("token 3"), std::string::npos) << message;
  }
  error_of(ErrorKind::kUsage, [] { validate(SamplingSpec{.logit_bias = {{-1, 1.f}}}); });
}

TEST(Sampling, RefusesIdsBeyondTheVocabulary) {
  SamplingSpec bias{.logit_bias = {{3, 1.f}}};
  error_of(ErrorKind::kUsage, [&] { choose(bias, {1, 2, 3}); });
  SamplingSpec penalty{.presence_penalty = 1.f};
  error_of(ErrorKind::kUsage, [&] { choose(penalty, {1, 2, 3}, {3}); });
  error_of(ErrorKind::kUsage, [&] { choose(penalty, {1, 2, 3}, {-1}); });
}

// ---- bias, penalties, fence

TEST(Bias, AddsToItsTokenAndExcludesByMinusInfinity) {
  EXPECT_EQ(choose({.temperature = 0.f, .logit_bias = {{0, 2.5f}}}, {1, 3}), 0);
  EXPECT_EQ(choose({.temperature = 0.f, .logit_bias = {{1, -kInfinity}}}, {1, 3}), 0);
}

TEST(Penalty, OfRepetitionLowersEveryRepeatedLogitOnce) {
  const SamplingSpec spec{.temperature = 1.f, .repetition_penalty = 1.5f};
  const auto candidates = kept(spec, {-2.f, -2.5f, 3.f, -kInfinity}, {0, 2, 3, 0, 0, 2});
  ASSERT_EQ(ids_of(candidates), (Ids{2, 1, 0}));  // the excluded one stays excluded, not NaN
  EXPECT_EQ(candidates[0].logit, 2.f);
  EXPECT_EQ(candidates[1].logit, -2.5f);
  EXPECT_EQ(candidates[2].logit, -3.f);
}

TEST(Penalty, OfPresenceCountsOnceAndOfFrequencyEachTime) {
  const SamplingSpec spec{.presence_penalty = 1.f, .frequency_penalty = 0.25f};
  const auto candidates = kept(spec, {5, 5, 5}, {1, 1, 1, 2});
  ASSERT_EQ(ids_of(candidates), (Ids{0, 2, 1}));
  EXPECT_EQ(candidates[1].logit, 3.75f);
  EXPECT_EQ(candidates[2].logit, 3.25f);
}

TEST(Penalty, ComesAfterTheBias) {
  const SamplingSpec spec{.repetition_penalty = 2.f, .logit_bias = {{0, 4.f}}};
  EXPECT_EQ(kept(spec, {-2.f, 0.f}, {0})[0].logit, 1.f);  // (-2 + 4) / 2
}

TEST(Fence, ExcludesWhateverTheLogits) {
  EXPECT_EQ(choose(greedy(), {9, 1, 2}, {}, {0, 1, 1}), 2);
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    Random random(seed);
    EXPECT_NE(sample({}, Logits{9, 1, 2}, {}, std::vector<std::uint8_t>{0, 1, 1}, random), 0);
  }
}

TEST(Fence, ForcesItsOnlyToken) {
  const SamplingSpec spec{.logit_bias = {{1, -kInfinity}}};
  EXPECT_EQ(choose(spec, {9, 1, 2}, {}, {0, 1, 0}), 1);
}

TEST(Sampling, RefusesToChooseAmongNothing) {
  error_of(ErrorKind::kUsage, [] { choose({}, {1, 2}, {}, {0, 0}); });
  error_of(ErrorKind::kUsage, [] { choose(greedy(), {-kInfinity, -kInfinity}); });
  const SamplingSpec spec{.logit_bias = {{0, -kInfinity}, {1, -kInfinity}}};
  error_of(ErrorKind::kUsage, [&] { choose(spec, {1, 2}); });
}

// ---- filters

TEST(Filter, OfTopKIsOffAtZeroAndBelowAndAboveTheVocabulary) {
  const Logits logits = {2, 1, 0, 0};
  for (const std::int64_t k :
       {std::int64_t(0), std::int64_t(-1), std::int64_t(4), std::int64_t(1000000000)}) {
    EXPECT_EQ(kept({.top_k = k}, logits).size(), 4u) << k;
  }
  EXPECT_EQ(ids_of(kept({.top_k = 1}, logits)), (Ids{0}));
  EXPECT_EQ(ids_of(kept({.top_k = 3}, logits)), (Ids{0, 1, 2}));  // of equals the lowest ids
}

TEST(Filter, OfTopPKeepsTheShortestPrefixThatReachesIt) {
  const Logits logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  EXPECT_EQ(kept({.top_p = 0.45f}, logits).size(), 1u);
  EXPECT_EQ(kept({.top_p = 0.55f}, logits).size(), 2u);
  EXPECT_EQ(kept({.top_p = 0.79f}, logits).size(), 2u);
  EXPECT_EQ(kept({.top_p = 0.81f}, logits).size(), 3u);
  EXPECT_EQ(kept({.top_p = 0.5f}, {0, 0}).size(), 1u);  // reached exactly
  const auto two = kept({.top_p = 0.55f}, logits);
  EXPECT_FLOAT_EQ(two[0].probability, 0.625f);
  EXPECT_FLOAT_EQ(two[1].probability, 0.375f);
}

TEST(Filter, KeepsExactlyTheBestAtItsStrictest) {
  EXPECT_EQ(ids_of(kept({.top_p = 0.f}, {2, 2.5f, 0})), (Ids{1}));
  EXPECT_EQ(ids_of(kept({.min_p = 1.f}, {2, 2.5f, 0})), (Ids{1}));
  EXPECT_EQ(ids_of(kept({.top_p = 0.f}, {2, 2, 0})), (Ids{0}));
}

TEST(Filter, MeasuresTopPWithinWhatTopKLeft) {
  const Logits logits = {std::log(0.4f), std::log(0.3f), std::log(0.3f)};
  // Of the two best, the first has 4/7 of the mass: enough for 0.5, which 0.4 of all is not.
  EXPECT_EQ(kept({.top_k = 2, .top_p = 0.5f}, logits).size(), 1u);
  EXPECT_EQ(kept({.top_p = 0.5f}, logits).size(), 2u);
}

TEST(Filter, RanksEqualLogitsByIdWhateverTheSignOfZero) {
  EXPECT_EQ(ids_of(kept({}, {-0.f, 0.f, 0.f, -0.f})), (Ids{0, 1, 2, 3}));
}

TEST(Filter, OfMinPIsRelativeToTheBest) {
  const Logits logits = {std::log(0.6f), std::log(0.3f), std::log(0.1f)};
  EXPECT_EQ(kept({.min_p = 0.49f}, logits).size(), 2u);
  EXPECT_EQ(kept({.min_p = 0.51f}, logits).size(), 1u);
  EXPECT_EQ(kept({.min_p = 0.16f}, logits).size(), 3u);
}

TEST(Filter, ComesAfterTheTemperature) {
  const auto candidates = kept({.temperature = 4.f, .min_p = 0.1f}, {5, 3, 0});
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_NEAR(candidates[0].probability, 0.528f, 5e-4f);
  EXPECT_NEAR(candidates[1].probability, 0.320f, 5e-4f);
  EXPECT_NEAR(candidates[2].probability, 0.151f, 5e-4f);
  EXPECT_FLOAT_EQ(candidates[1].logit, 0.75f);
  EXPECT_EQ(kept({.min_p = 0.1f}, {5, 3, 0}).size(), 2u);
}

TEST(Temperature, NearZeroIsGreedyWithoutOverflow) {
  for (const float t : {1e-45f, 1e-30f, 1e-6f}) {
    for (std::uint64_t seed = 1; seed < 20; ++seed) {
      EXPECT_EQ(draws({.temperature = t}, {1e30f, 2e30f, -1e30f}, seed, 1), (Ids{1})) << t;
    }
  }
}

// ---- the draw

TEST(Draw, TakesTheFirstRankWhoseCumulativeMassExceedsTheNumber) {
  const Logits logits = {std::log(0.2f), std::log(0.5f), std::log(0.3f)};  // ranks 1, 2, 0
  int seen[3] = {};
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random twin(seed);
    const float u = twin.uniform();
    if (std::abs(u - 0.5f) < 1e-4f || std::abs(u - 0.8f) < 1e-4f) continue;
    const std::int32_t want = u < 0.5f ? 1 : u < 0.8f ? 2 : 0;
    EXPECT_EQ(draws({}, logits, seed, 1)[0], want) << u;
    ++seen[want];
  }
  for (const int count : seen) EXPECT_GT(count, 30);
}

TEST(Draw, OfANumberOnABoundaryTakesTheRankBehindIt) {
  Random twin(7767648);
  ASSERT_EQ(twin.uniform(), 0.5f);
  EXPECT_EQ(draws({}, {0, 0}, 7767648, 1), (Ids{1}));
}

TEST(Draw, AgreesWithAPublishedSamplerWhereTheRulesCoincide) {
  // With top-k alone, or top-p alone, that sampler's order and cuts are ours.
  const Logits logits = {1, 2, 2, -1, 0.5f, 3, 2.9f, -5};
  EXPECT_EQ(draws({.top_p = 0.8f}, logits, 778, 12), (Ids{5, 6, 2, 6, 5, 6, 5, 5, 5, 6, 5, 2}));
  EXPECT_EQ(draws({.temperature = 0.7f, .top_k = 3}, logits, 779, 12),
            (Ids{5, 5, 5, 5, 6, 6, 6, 5, 5, 6, 6, 5}));
}

TEST(Draw, FollowsTheSoftmaxWithinFourSigma) {
  const Logits logits = {2, 1, 0, 0};
  const int n = 4000;
  for (const std::int64_t k : {0, -1, 3, 1000000000}) {
    const auto candidates = kept({.top_k = k}, logits);
    int counts[4] = {};
    for (const std::int32_t id : draws({.top_k = k}, logits, 99, n)) ++counts[id];
    double mass = 0.0;
    for (const Candidate& c : candidates) mass += std::exp(double(logits[std::size_t(c.id)]));
    for (const Candidate& c : candidates) {
      const double p = std::exp(double(logits[std::size_t(c.id)])) / mass;
      EXPECT_NEAR(counts[c.id], n * p, 4.0 * std::sqrt(n * p * (1.0 - p))) << c.id << " k " << k;
    }
  }
  for (const std::int32_t id : draws({.top_k = 1}, logits, 99, 100)) EXPECT_EQ(id, 0);
}

TEST(Draw, GivesOneSeedOneSequence) {
  const Logits logits = {1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(draws({}, logits, 42, 50), draws({}, logits, 42, 50));
  EXPECT_NE(draws({}, logits, 42, 50), draws({}, logits, 43, 50));
}

/// The rule as the contract words it, with a full sort: the fast path must agree with it exactly.
std::int32_t plain_rule(const SamplingSpec& spec, const Logits& logits, Random& random,
                        std::size_t& size) {
  Ids ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](std::int32_t id) { return logits[std::size_t(id)]; };
  std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return logit(a) > logit(b); });
  const double best = double(logit(ids[0]));
  const auto weight = [&](std::int32_t id) {
    return std::exp((double(logit(id)) - best) / double(spec.temperature));
  };
  const auto mass_in_id_order = [&] {
    Ids sorted = ids;
    std::sort(sorted.begin(), sorted.end());
    double mass = 0.0;
    for (const auto id : sorted) mass += weight(id);
    return mass;
  };
  if (spec.top_k > 0 && std::size_t(spec.top_k) < ids.size()) ids.resize(std::size_t(spec.top_k));
  double mass = mass_in_id_order();
  if (spec.top_p < 1.f) {
    double sum = 0.0;
    std::size_t n = 0;
    while (n < ids.size() && (n == 0 || sum < double(spec.top_p) * mass)) sum += weight(ids[n++]);
    ids.resize(n);
  }
  while (weight(ids.back()) < double(spec.min_p)) ids.pop_back();
  mass = 0.0;
  for (const auto id : ids) mass += weight(id);
  if (spec.top_p >= 1.f) mass = mass_in_id_order();
  size = ids.size();
  const double goal = double(random.uniform()) * mass;
  double sum = 0.0;
  for (const auto id : ids) {
    if ((sum += weight(id)) > goal) return id;
  }
  return ids.back();
}

void expect_plain_rule(const SamplingSpec& spec, const Logits& logits, std::uint64_t seed) {
  Random plain(seed), fast(seed), untraced(seed);
  SamplingTrace trace;
  std::size_t size = 0;
  const std::int32_t want = plain_rule(spec, logits, plain, size);
  EXPECT_EQ(sample(spec, logits, {}, {}, fast, &trace), want);
  EXPECT_EQ(sample(spec, logits, {}, {}, untraced), want);
  EXPECT_EQ(trace.kept.size(), size);
}

std::vector<SamplingSpec> many_filters() {
  std::vector<SamplingSpec> specs;
  for (const std::int64_t k : {0, 1, 2, 40, 5000}) {
    for (const float p : {0.f, 0.3f, 0.95f, 1.f}) {
      for (const float m : {0.f, 0.05f, 1.f}) {
        specs.push_back({.temperature = 0.8f, .top_k = k, .top_p = p, .min_p = m});
      }
    }
  }
  return specs;
}

TEST(Sampling, OfSmallVocabulariesWithTiesFollowsThePlainRule) {
  std::mt19937 generator(3);
  std::uniform_int_distribution<int> level(-4, 4);
  std::uint64_t seed = 1;
  for (const SamplingSpec& spec : many_filters()) {
    for (const std::size_t vocabulary : {1u, 2u, 5u, 129u, 700u}) {
      Logits logits(vocabulary);
      for (float& logit : logits) logit = float(level(generator));
      expect_plain_rule(spec, logits, seed++);
    }
  }
}

TEST(Sampling, OfALargeVocabularyFollowsThePlainRule) {
  std::mt19937 generator(4);
  std::normal_distribution<float> normal(0.f, 3.f);
  Logits logits(256 * 1024);
  for (float& logit : logits) logit = normal(generator);
  const std::vector<SamplingSpec> specs = {{},
                                           {.top_k = 40},
                                           {.top_p = 0.9f},
                                           {.min_p = 1e-4f},
                                           {.top_k = 100000, .top_p = 0.99f, .min_p = 1e-6f}};
  for (const SamplingSpec& spec : specs) expect_plain_rule(spec, logits, 11);
}

TEST(LogProbability, IsTheLogarithmOfTheSoftmax) {
  const Logits logits = {1, 2, 3, -kInfinity};
  EXPECT_NEAR(log_probability(logits, 2), -0.40760596, 1e-8);
  EXPECT_NEAR(log_probability(logits, 0), -2.40760596, 1e-8);
  EXPECT_EQ(log_probability(logits, 3), -double(kInfinity));
  EXPECT_NEAR(log_probability(Logits{1e30f, 1e30f}, 1), -std::log(2.0), 1e-12);
}

}  // namespace
}  // namespace lemma::algorithm
