// SPDX-License-Identifier: Apache-2.0
#include "eval/route_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "eval/route_recorder.hpp"
#include "lemma/error.hpp"
#include "test_data.hpp"

namespace lemma::eval {
namespace {

using testing::HasSubstr;

RouteTrace small() {
  return {.first_layer = 3,
          .layers = 2,
          .experts = 4,
          .chosen = 2,
          .starts = {0, 2},
          .routes = {0, 1, 2, 3, 1, 0, 3, 2, 2, 1, 0, 3},
          .scores = std::vector<std::uint16_t>(24, 0x3c00)};
}

/// The message with which bytes are refused; empty if they are not.
std::string refusal(const std::vector<std::byte>& bytes) {
  try {
    parse_routes(bytes, "file");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadFile);
    return error.what();
  }
  return {};
}

/// A small trace with the u32 at `offset` replaced.
std::vector<std::byte> changed(std::size_t offset, std::uint32_t value) {
  std::vector<std::byte> bytes = serialize(small());
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

TEST(RouteTrace, ComesBackAsItWasWritten) {
  EXPECT_EQ(parse_routes(serialize(small()), "file"), small());
  RouteTrace unscored = small();
  unscored.scores.clear();
  EXPECT_EQ(parse_routes(serialize(unscored), "file"), unscored);
  RouteTrace empty = small();
  empty.starts.clear();
  empty.routes.clear();
  empty.scores.clear();
  EXPECT_EQ(parse_routes(serialize(empty), "file"), empty);
}

TEST(RouteTrace, RefusesWhatIsNoTrace) {
  EXPECT_THAT(refusal({}), HasSubstr("no route trace"));
  EXPECT_THAT(refusal(changed(0, 0x12345678)), HasSubstr("does not begin with"));
  EXPECT_THAT(refusal(changed(8, 2)), HasSubstr("version: expected 1, found 2"));
  EXPECT_THAT(refusal(changed(12, 5000)), HasSubstr("first layer"));
  EXPECT_THAT(refusal(changed(16, 0)), HasSubstr("layers: expected 1 to 4096, found 0"));
  EXPECT_THAT(refusal(changed(20, 70000)), HasSubstr("experts: expected 1 to 65536"));
  EXPECT_THAT(refusal(changed(24, 5)), HasSubstr("chosen experts: expected 1 to 4, found 5"));
  EXPECT_THAT(refusal(changed(32, 2)), HasSubstr("look-ahead"));
  EXPECT_THAT(refusal(changed(36, 0)), HasSubstr("sequences"));
}

TEST(RouteTrace, RefusesSizesThatTheFileDoesNotHave) {
  // Counts as large as they may be: nothing is allocated for them.
  EXPECT_THAT(refusal(changed(28, 0xffffffff)), HasSubstr("behind the header, found"));
  EXPECT_THAT(refusal(changed(16, 4096)), HasSubstr("behind the header, found"));
  std::vector<std::byte> bytes = serialize(small());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(refusal({bytes.begin(), bytes.begin() + std::ptrdiff_t(size)}), "") << size;
  bytes.push_back(std::byte{0});
  EXPECT_THAT(refusal(bytes), HasSubstr("behind the header, found"));
}

TEST(RouteTrace, RefusesRoutesAndSequencesThatCannotBe) {
  RouteTrace trace = small();
  trace.routes[5] = 4;
  EXPECT_THAT(refusal(serialize(trace)), HasSubstr("token 1, layer 0: expert 4 of 4"));
  trace = small();
  trace.routes[1] = 0;
  EXPECT_THAT(refusal(serialize(trace)), HasSubstr("expert 0 of 4 twice"));
  for (const std::vector<std::uint32_t>& starts :
       {std::vector<std::uint32_t>{1, 2}, {0, 3}, {0, 0}}) {
    trace = small();
    trace.starts = starts;
    EXPECT_THAT(refusal(serialize(trace)), HasSubstr("begins at token"));
  }
}

TEST(RouteTrace, IsReplayedAsItCame) {
  // One expert of two, always the one of the token before: after the first token a predictor by
  // time that names one is always right.
  RouteTrace trace{.layers = 1,
                   .experts = 2,
                   .chosen = 1,
                   .starts = {0},
                   .routes = {1, 1, 1, 1, 1},
                   .scores = {}};
  algorithm::ExpertPredictorSpec spec{.prefetch = 1};
  const auto statistics = replay(trace, spec);
  EXPECT_EQ(statistics.evaluated, 5U);
  EXPECT_EQ(statistics.wanted, 5U);
  EXPECT_EQ(statistics.hits, 4U);
}

TEST(RouteRecorder, NotesTheExpertsOfEveryTokenAndWhatTheNextRouterWouldSay) {
  LEMMA_TEST_DATA_OR_SKIP(model, "goldens/gpt-oss/model.gguf");
  const std::vector<std::int32_t> tokens = {1, 403, 407, 261, 378, 432, 383};
  ModelRun run({.path = model, .threads = 1});
  const RouteTrace trace = record_routes(run, tokens);
  EXPECT_EQ(trace.layers, 3U);
  EXPECT_EQ(trace.experts, 8U);
  EXPECT_EQ(trace.chosen, 3U);
  EXPECT_EQ(trace.tokens(), tokens.size());
  EXPECT_EQ(trace.scores.size(), tokens.size() * 3 * 8);
  EXPECT_EQ(trace.scores[0] & 0x7fff, 0x7e00) << "nothing comes before the first layer";
  EXPECT_NE(trace.scores[8] & 0x7c00, 0x7c00);
  EXPECT_EQ(parse_routes(serialize(trace), "file"), trace);
}

TEST(RouteRecorder, RefusesAModelWithoutExperts) {
  LEMMA_TEST_DATA_OR_SKIP(model, "models/stories260K-f32.gguf");
  ModelRun run({.path = model, .threads = 1});
  EXPECT_THROW(record_routes(run, std::vector<std::int32_t>{1, 2}), Error);
}

}  // namespace
}  // namespace lemma::eval
