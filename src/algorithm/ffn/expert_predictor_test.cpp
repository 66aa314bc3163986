// SPDX-License-Identifier: Apache-2.0
#include "algorithm/ffn/expert_predictor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>

#include "algorithm/attention/test_rows.hpp"
#include "algorithm/ffn/topk_moe.hpp"

namespace lemma::algorithm {
namespace {

using test::changed;
using test::expect_refused;
using test::Ids;
using test::random_row;
using test::Row;
using Spec = ExpertPredictorSpec;

Spec small(std::uint32_t layers = 2) {
  Spec spec;
  spec.first_layer = 3;
  spec.layers = layers;
  spec.experts = 8;
  spec.chosen = 2;
  spec.prefetch = 4;
  return spec;
}

/// Only one of the four signals: 'f', 't', 's' or 'r'.
Spec only(char signal, std::uint32_t layers = 2) {
  Spec spec = small(layers);
  spec.frequency = signal == 'f' ? 1.f : 0.f;
  spec.temporal = signal == 't' ? 1.f : 0.f;
  spec.spatial = signal == 's' ? 1.f : 0.f;
  spec.future_router = signal == 'r' ? 1.f : 0.f;
  return spec;
}

void learn(ExpertPredictor& predictor, const std::vector<Ids>& routes) {
  predictor.begin_token();
  std::uint32_t layer = 3;
  for (const Ids& route : routes) predictor.observe(layer++, route);
  predictor.finish_token();
}

TEST(ExpertPredictor, KnowsNothingAtFirst) {
  ExpertPredictor predictor(small());
  predictor.begin_token();
  EXPECT_TRUE(predictor.predict(3).empty());
}

TEST(ExpertPredictor, ByFrequencyNamesWhatWasChosenMostOften) {
  ExpertPredictor predictor(only('f'));
  learn(predictor, {{5, 2}});
  predictor.begin_token();
  EXPECT_EQ(predictor.predict(3), (Ids{2, 5}));
  EXPECT_TRUE(predictor.predict(4).empty()) << "layers learn on their own";
  predictor.finish_token();
  learn(predictor, {{5, 7}});
  predictor.begin_token();
  EXPECT_EQ(predictor.predict(3), (Ids{5, 2, 7}));
}

TEST(ExpertPredictor, ByTimeRepeatsTheRouteBeforeUntilItKnowsBetter) {
  ExpertPredictor predictor(only('t'));
  learn(predictor, {{6, 1}});
  predictor.begin_token();
  EXPECT_EQ(predictor.predict(3), (Ids{1, 6}));
  predictor.observe(3, Ids{0, 4});
  predictor.finish_token();
  learn(predictor, {{6, 1}});
  predictor.begin_token();
  EXPECT_EQ(predictor.predict(3), (Ids{0, 4})) << "which followed 6 and 1 last time";
}

TEST(ExpertPredictor, BySpaceFollowsTheLayerBefore) {
  ExpertPredictor predictor(only('s'));
  learn(predictor, {{0, 1}, {6, 7}});
  learn(predictor, {{2, 3}, {4, 5}});
  predictor.begin_token();
  EXPECT_TRUE(predictor.predict(3).empty()) << "no layer precedes the first";
  EXPECT_TRUE(predictor.predict(4).empty()) << "its layer before was not observed yet";
  predictor.observe(3, Ids{1, 0});
  EXPECT_EQ(predictor.predict(4), (Ids{6, 7}));
}

TEST(ExpertPredictor, BySpacePrefersTheMostRecentRouteWithinASequence) {
  ExpertPredictor predictor(only('s'));
  for (int i = 0; i < 3; ++i) learn(predictor, {{0, 1}, {6, 7}});
  learn(predictor, {{0, 1}, {2, 3}});
  const auto ask = [&] {
    predictor.begin_token();
    predictor.observe(3, Ids{0, 1});
    return predictor.predict(4);
  };
  EXPECT_EQ(ask(), (Ids{2, 3}));
  predictor.begin_sequence();
  EXPECT_EQ(ask(), (Ids{6, 7, 2, 3})) << "a new text has only the counts";
}

TEST(ExpertPredictor, ByTheRouterNamesItsBestExperts) {
  ExpertPredictor predictor(only('r'));
  predictor.begin_token();
  const float nan = std::nanf("");
  EXPECT_EQ(predictor.predict(3, Row{-9, 4, nan, 7, -2, test::kInfinity, -8, -8.5f}),
            (Ids{3, 1, 4, 6}));
  EXPECT_TRUE(predictor.predict(3, Row(8, 5.f)).empty()) << "equal scores say nothing";
  EXPECT_TRUE(predictor.predict(3, Row(8, nan)).empty());
}

TEST(ExpertPredictor, AddsItsSignalsByWeight) {
  Spec spec = only('f');
  spec.future_router = 0.6f;
  ExpertPredictor predictor(spec);
  learn(predictor, {{2, 5}});
  predictor.begin_token();
  EXPECT_EQ(predictor.predict(3, Row{0, 0, 1, 0, 0, 0, 0, 2}), (Ids{2, 5, 7}))
      << "1 + 0.3, 1 and 0.6";
}

TEST(ExpertPredictor, NamesNoMoreThanItMayFetch) {
  ExpertPredictor none(changed(small(), &Spec::prefetch, 0u));
  ExpertPredictor one(changed(small(), &Spec::prefetch, 1u));
  for (ExpertPredictor* predictor : {&none, &one}) {
    learn(*predictor, {{2, 5}});
    predictor->begin_token();
  }
  EXPECT_TRUE(none.predict(3).empty());
  EXPECT_EQ(one.predict(3), (Ids{2}));
}

TEST(ExpertPredictor, CountsWhatItPredictedAndWhatCame) {
  ExpertPredictor predictor(only('f'));
  learn(predictor, {{2, 5}});
  EXPECT_EQ(predictor.statistics(), PredictorStatistics{}) << "nothing was asked";
  predictor.begin_token();
  predictor.predict(3);
  predictor.observe(3, Ids{5, 0});
  predictor.observe(4, Ids{1, 0});
  predictor.finish_token();
  EXPECT_EQ(predictor.statistics(), (PredictorStatistics{1, 2, 1, 2}));
  EXPECT_EQ(predictor.statistics().precision(), 0.5);
  EXPECT_EQ(predictor.statistics().recall(), 0.5);
  EXPECT_EQ(PredictorStatistics{}.precision(), 0.0);
  predictor.reset_statistics();
  EXPECT_EQ(predictor.statistics(), PredictorStatistics{});
}

TEST(ExpertPredictor, FadesOldHabits) {
  ExpertPredictor predictor(only('f', 1));
  for (int i = 0; i < 20000; ++i) learn(predictor, {{0, 1}});
  // Without halving, 20000 would stay ahead of 19000.
  for (int i = 0; i < 19000; ++i) learn(predictor, {{2, 3}});
  for (int i = 0; i < 900; ++i) learn(predictor, {{4, 5}});
  predictor.begin_token();
  const Ids named = predictor.predict(3);
  EXPECT_EQ(Ids(named.begin(), named.begin() + 2), (Ids{2, 3}));
}

TEST(ExpertPredictor, RefusesCallsOutOfTurnAndLearnsNothingFromThem) {
  ExpertPredictor predictor(only('f'));
  EXPECT_THROW(predictor.observe(3, Ids{0, 1}), Error);
  EXPECT_THROW(predictor.predict(3), Error);
  EXPECT_THROW(predictor.finish_token(), Error);
  predictor.begin_token();
  EXPECT_THROW(predictor.begin_token(), Error);
  EXPECT_THROW(predictor.replay(Ids(4, 0)), Error);
  EXPECT_THROW(predictor.observe(3, Ids{0, 0}), Error) << "twice the same";
  EXPECT_THROW(predictor.observe(3, Ids{0, 8}), Error) << "no such expert";
  EXPECT_THROW(predictor.observe(3, Ids{0}), Error) << "too few";
  EXPECT_THROW(predictor.observe(2, Ids{0, 1}), Error) << "no such layer";
  EXPECT_THROW(predictor.observe(5, Ids{0, 1}), Error);
  EXPECT_THROW(predictor.predict(3, Row(7, 0.f)), Error);
  EXPECT_TRUE(predictor.predict(3).empty()) << "nothing was learned";
  predictor.observe(3, Ids{2, 5});
  EXPECT_THROW(predictor.observe(3, Ids{0, 1}), Error) << "once per token";
  EXPECT_THROW(predictor.predict(3), Error);
  predictor.finish_token();
  predictor.begin_token();
  EXPECT_EQ(predictor.predict(3), (Ids{2, 5}));
}

TEST(ExpertPredictor, FromAReplayIsWhatItIsFromTheTokens) {
  constexpr std::uint32_t kLayers = 3, kTokens = 40;
  ExpertPredictor online(small(kLayers)), replayed(small(kLayers));
  std::mt19937 generator(1);
  Ids layer_major(kLayers * kTokens * 2);
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    std::vector<Ids> routes;
    for (std::uint32_t l = 0; l < kLayers; ++l) {
      const std::uint32_t a = generator() % 8, b = std::uint32_t((a + 1 + generator() % 7) % 8);
      routes.push_back({a, b});
      layer_major[(l * kTokens + t) * 2] = a;
      layer_major[(l * kTokens + t) * 2 + 1] = b;
    }
    learn(online, routes);
  }
  Ids broken = layer_major;
  broken.back() = 99;
  EXPECT_THROW(replayed.replay(broken), Error);
  EXPECT_THROW(replayed.replay(Ids(5, 0)), Error);
  replayed.replay(layer_major);
  online.begin_token();
  replayed.begin_token();
  for (std::uint32_t l = 3; l < 3 + kLayers; ++l) {
    const Ids want = online.predict(l);
    EXPECT_FALSE(want.empty());
    EXPECT_EQ(replayed.predict(l), want);
    online.observe(l, Ids{1, 6});
    replayed.observe(l, Ids{1, 6});
  }
}

/// A made-up text in a model of some layers: a topic that changes now and then favours a few
/// experts, each layer's route mostly follows from the one before it, and a look ahead sees the
/// coming route through noise.
struct Trace {
  static constexpr std::uint32_t kLayers = 4, kExperts = 64, kChosen = 4, kTokens = 3000;

  Trace() {
    std::mt19937 generator(7);
    std::uniform_real_distribution<float> uniform(0.f, 1.f);
    std::normal_distribution<float> normal;
    std::uint32_t topic = 0;
    for (std::uint32_t t = 0; t < kTokens; ++t) {
      if (uniform(generator) < 0.02f) topic = std::uint32_t(generator() % 12);
      for (std::uint32_t l = 0; l < kLayers; ++l) {
        Ids route;
        while (route.size() < kChosen) {
          std::uint32_t expert = generator() % kExperts;
          const float draw = uniform(generator);
          if (draw < 0.45f) {
            expert = (topic * 5 + l * 11 + generator() % 6) % kExperts;
          } else if (draw < 0.80f && l > 0) {
            expert = (routes.back()[route.size()] * 29 + 7) % kExperts;
          }
          if (std::count(route.begin(), route.end(), expert) == 0) route.push_back(expert);
        }
        Row score(kExperts);
        for (float& s : score) s = normal(generator);
        for (const std::uint32_t expert : route) score[expert] += 1.5f;
        routes.push_back(route);
        scores.push_back(score);
      }
    }
  }
  /// How many of the experts that came had been named, in the second half of the text.
  double recall(Spec spec, bool look_ahead) const {
    spec.layers = kLayers;
    spec.experts = kExperts;
    spec.chosen = kChosen;
    spec.prefetch = 8;
    ExpertPredictor predictor(spec);
    for (std::uint32_t t = 0; t < kTokens; ++t) {
      if (t == kTokens / 2) predictor.reset_statistics();
      predictor.begin_token();
      for (std::uint32_t l = 0; l < kLayers; ++l) {
        const std::size_t i = std::size_t(t) * kLayers + l;
        predictor.predict(
            3 + l, look_ahead ? std::span<const float>(scores[i]) : std::span<const float>());
        predictor.observe(3 + l, routes[i]);
      }
      predictor.finish_token();
    }
    return predictor.statistics().recall();
  }
  std::vector<Ids> routes;
  std::vector<Row> scores;
};

TEST(ExpertPredictor, BeatsFrequencyAloneOnATraceWithTopicsAndPaths) {
  const Trace trace;
  const double frequency = trace.recall(only('f'), false);
  const double history = trace.recall(small(), false);
  const double all = trace.recall(small(), true);
  std::printf(
      "hit rate: frequency alone %.3f; with time and layers %.3f (+%.3f); "
      "with the router too %.3f (+%.3f)\n",
      frequency, history, history - frequency, all, all - frequency);
  EXPECT_GT(history, frequency + 0.05);
  EXPECT_GT(all, history + 0.05);
}

/// Experts of a mixture behind a small cache that a predictor fills early.
struct CachedExperts {
  const Row& weights(std::uint32_t expert) {
    const auto [at, fresh] = cache.try_emplace(expert);
    if (fresh) at->second = random_row(16, expert), ++loads;
    return at->second;
  }
  std::map<std::uint32_t, Row> cache;
  int loads = 0;
};

TEST(ExpertPredictor, CannotChangeWhatTheModelComputes) {
  MoeSpec moe;
  moe.routing.experts = 8;
  moe.routing.chosen = 2;
  moe.expert.width = 4;
  moe.expert.hidden = 1;
  enum { kOff, kOn, kAdversarial };
  std::vector<Row> outputs[3];
  for (const int mode : {kOff, kOn, kAdversarial}) {
    ExpertPredictor predictor(small(1));
    CachedExperts experts;
    for (unsigned t = 0; t < 30; ++t) {
      experts.cache.clear();
      Ids ids(2), hints;
      Row weights(2), scratch(moe.routing.scratch_size()), out(4), buffer(8);
      const Row logits = random_row(8, 500 + t), x = random_row(4, 600 + t);
      ASSERT_TRUE(route(moe.routing, {logits, {}, {}, {}}, scratch, ids, weights));
      predictor.begin_token();
      if (mode == kOn) hints = predictor.predict(3, logits);
      for (std::uint32_t e = 0; mode == kAdversarial && e < 8; ++e) {
        if (std::count(ids.begin(), ids.end(), e) == 0) hints.push_back(e);
      }
      for (const std::uint32_t hint : hints) experts.weights(hint);
      const auto run = [&](std::uint32_t e, std::span<const float> in, std::span<float> y) {
        const Row& w = experts.weights(e);
        for (std::size_t i = 0; i < 4; ++i) {
          y[i] = 0.f;
          for (std::size_t j = 0; j < 4; ++j) y[i] += w[4 * i + j] * in[j];
        }
      };
      combine_experts(moe, x, ids, weights, run, buffer, out);
      predictor.observe(3, ids);
      predictor.finish_token();
      outputs[mode].push_back(out);
    }
    if (mode == kAdversarial) {
      EXPECT_EQ(experts.loads, 30 * 8) << "every hint was a waste";
    }
  }
  EXPECT_EQ(outputs[kOn], outputs[kOff]);
  EXPECT_EQ(outputs[kAdversarial], outputs[kOff]);
}

TEST(ExpertPredictor, RefusesSpecsThatMakeNoSense) {
  EXPECT_NO_THROW(small().validate());
  expect_refused(changed(small(), &Spec::layers, 0u), "layers");
  expect_refused(changed(small(), &Spec::first_layer, 0xffffffffu), "layers");
  expect_refused(changed(small(), &Spec::experts, 65537u), "experts");
  expect_refused(changed(small(), &Spec::chosen, 9u), "chosen");
  expect_refused(changed(small(), &Spec::prefetch, 9u), "prefetch");
  expect_refused(changed(small(), &Spec::frequency, -1.f), "frequency");
  expect_refused(changed(small(), &Spec::temporal, std::nanf("")), "temporal");
  expect_refused(changed(small(), &Spec::spatial, test::kInfinity), "spatial");
  expect_refused(changed(small(), &Spec::future_router, -1.f), "future router");
  expect_refused(only('-'), "weights");
}

}  // namespace
}  // namespace lemma::algorithm
