// SPDX-License-Identifier: Apache-2.0
// The expert predictor on recorded routes: is what it adds to frequencies worth anything?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "eval/route_trace.hpp"
#include "test_data.hpp"

namespace lemma::eval {
namespace {

struct Recording {
  const char* name;
  double margin;  ///< at least this share of experts more than by frequency alone
};

class RecordedRoutes : public testing::TestWithParam<Recording> {};

/// The share of a route's experts that a predictor names beforehand, if it may name as many.
double recall(const RouteTrace& trace, float frequency, float temporal, float spatial,
              float router) {
  algorithm::ExpertPredictorSpec spec;
  spec.prefetch = trace.chosen;
  spec.frequency = frequency;
  spec.temporal = temporal;
  spec.spatial = spatial;
  spec.future_router = router;
  return replay(trace, spec).recall();
}

TEST_P(RecordedRoutes, ArePredictedBetterByAllSignalsThanByFrequencyAlone) {
  const RouteTrace trace = read_routes(test::source_dir() / "src/eval/testdata" /
                                       (std::string(GetParam().name) + ".lemroute"));
  ASSERT_GT(trace.tokens(), 500U);
  const algorithm::ExpertPredictorSpec usual;
  const double all =
      recall(trace, usual.frequency, usual.temporal, usual.spatial, usual.future_router);
  const double frequency = recall(trace, 1, 0, 0, 0);
  std::cout << fmt::format(
      "{}: {} tokens, {} layers, {} of {} experts: named beforehand {:.1f} % by all signals, "
      "{:.1f} "
      "% by frequency alone (a margin of {:.1f}), {:.1f} % by time, {:.1f} % by space, {:.1f} % by "
      "the router ahead, {:.1f} % by chance\n",
      GetParam().name, trace.tokens(), trace.layers, trace.chosen, trace.experts, 100 * all,
      100 * frequency, 100 * (all - frequency), 100 * recall(trace, 0, 1, 0, 0),
      100 * recall(trace, 0, 0, 1, 0), 100 * recall(trace, 0, 0, 0, 1),
      100.0 * trace.chosen / trace.experts);
  EXPECT_GE(all - frequency, GetParam().margin);
  EXPECT_GT(frequency, double(trace.chosen) / trace.experts);
}

INSTANTIATE_TEST_SUITE_P(OfSeededModels, RecordedRoutes,
                         testing::Values(Recording{"gpt-oss", 0.05}, Recording{"qwen35moe", 0.08}),
                         [](const auto& param) {
                           std::string name = param.param.name;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace lemma::eval
