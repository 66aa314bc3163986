// SPDX-License-Identifier: Apache-2.0
// The life of a request, against scripted logits.
#include "runtime/generation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/utf8.hpp"
#include "runtime/scripted_machine.hpp"

namespace lemma::runtime {
namespace {

using namespace scripted;
using state::TokenClass;
using ::testing::HasSubstr;

Sampling greedy() {
  return {.temperature = 0.f};
}

Request request(History prompt) {
  Request made;
  made.prompt = std::move(prompt);
  made.sampling = greedy();
  return made;
}

Request text_request(std::vector<std::string> stop = {}) {
  Request made = request({1});
  made.stop = std::move(stop);
  return made;
}

/// Greedy output of the pieces after the prompt {1}.
Answer answer_of(std::string_view output, std::vector<std::string> stop = {}) {
  Loop loop(emit(1, byte_tokens(output)));
  return collect(*loop.submit(text_request(std::move(stop))));
}

template <typename Function>
std::string usage_error(Function&& function, ErrorKind kind = ErrorKind::kUsage) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Generation, NeitherEmitsNorFeedsTheEndToken) {
  Loop loop(emit(4, {7}));
  const Answer answer = collect(*loop.submit(request({10, 11, 12, 13})));
  loop.stop();
  EXPECT_EQ(answer.tokens, History{7});
  EXPECT_EQ(answer.last.finish, FinishReason::kStop);
  EXPECT_EQ(answer.last.stop, "");
  EXPECT_EQ(answer.last.usage.decode_rounds, 1u);
  EXPECT_EQ(loop.machine.ran, (std::vector<RanSegment>{{0, 4, TokenClass::kEntered},
                                                       {4, 1, TokenClass::kGenerated}}));
}

TEST(Generation, EndsAtEveryTokenThatEndsATurn) {
  // This vocabulary names no end token in its metadata; two of its tokens end a turn all the same.
  const std::shared_ptr<const text::Tokenizer> words =
      text::Tokenizer::from_metadata(text::sample::byte_level("gpt-2"));
  for (const char* name : {"<|eot_id|>", "<|endoftext|>"}) {
    const auto size = std::uint32_t(words->vocabulary_size());
    GenerationJob job(request({1}), std::make_shared<ModelFacts>(ModelFacts{words, size, 64}));
    state::Layout layout({}, {});
    state::PagePool pool(layout, {});
    ASSERT_TRUE(job.start(pool));
    std::vector<float> logits(size, 0.f);
    logits[std::size_t(words->find(name).value())] = 9.f;
    job.sequence().reserve(1);
    job.sequence().commit(History{1}, TokenClass::kEntered);
    EXPECT_FALSE(job.advance(1, logits)) << name;
    job.report();
    const Event last = job.next().value();
    EXPECT_EQ(last.finish, FinishReason::kStop);
    EXPECT_EQ(last.text, "");
    EXPECT_FALSE(last.token);
  }
}

TEST(Generation, EmitsTheEndTokenWhenNotAskedToStopThere) {
  Loop loop(emit(1, {7}));
  Request asked = request({1});
  asked.stop_at_end = false;
  asked.max_tokens = 3;
  EXPECT_EQ(collect(*loop.submit(asked)).tokens, (History{7, kEnd, kEnd}));
}

TEST(Generation, EmitsTheLastAllowedTokenWithoutFeedingIt) {
  Loop loop(noise);
  Request asked = request({10, 11});
  asked.max_tokens = 3;
  const Answer answer = collect(*loop.submit(asked));
  EXPECT_EQ(answer.tokens.size(), 3u);
  EXPECT_EQ(answer.last.finish, FinishReason::kLength);
  EXPECT_EQ(answer.last.usage.generated_tokens, 3u);
  EXPECT_EQ(answer.last.usage.decode_rounds, 2u);
  EXPECT_EQ(answer.last.usage.prompt_tokens, 2u);
  EXPECT_EQ(loop.machine.rows, 4u);
}

TEST(Generation, RunsNothingForNoTokens) {
  Loop loop(noise);
  Request asked = request({10, 11});
  asked.max_tokens = 0;
  const Answer answer = collect(*loop.submit(asked));
  EXPECT_TRUE(answer.tokens.empty());
  EXPECT_EQ(answer.last.finish, FinishReason::kLength);
  EXPECT_EQ(loop.machine.rows, 0u);
}

TEST(Generation, EndsAtTheContextWithOneTokenWhenThePromptFillsIt) {
  Loop loop(noise, {.context = 8});
  const Answer answer = collect(*loop.submit(request(History(8, 10))));
  EXPECT_EQ(answer.tokens.size(), 1u);
  EXPECT_EQ(answer.last.finish, FinishReason::kLength);
  EXPECT_EQ(answer.last.usage.decode_rounds, 0u);
  EXPECT_EQ(loop.machine.rows, 8u);
}

TEST(Generation, FillsTheContextAndEndsThere) {
  Loop loop(noise, {.context = 8});
  const Answer answer = collect(*loop.submit(request(History(5, 10))));
  EXPECT_EQ(answer.tokens.size(), 4u);  // at positions 5, 6, 7 and one that is not fed
  EXPECT_EQ(answer.last.finish, FinishReason::kLength);
  EXPECT_EQ(loop.machine.rows, 8u);
}

TEST(Generation, RefusesAPromptThatDoesNotFitNamingBothNumbers) {
  Loop loop(noise, {.context = 8});
  const std::string message =
      usage_error([&] { loop.submit(request(History(9, 10))); }, ErrorKind::kContextFull);
  EXPECT_THAT(message, HasSubstr("9"));
  EXPECT_THAT(message, HasSubstr("8"));
}

TEST(Generation, SendsNothingOfAStopStringSpreadOverTokens) {
  const Answer answer = answer_of("ABCDEFGHIJK", {"DEFGHIJ"});
  EXPECT_EQ(answer.text, "ABC");
  EXPECT_EQ(answer.last.finish, FinishReason::kStop);
  EXPECT_EQ(answer.last.stop, "DEFGHIJ");
  EXPECT_EQ(answer.tokens.size(), 10u);
}

TEST(Generation, DoesNotCountTextOfThePromptTowardsAStopString) {
  Loop loop(emit(3, byte_tokens("GHIJ")));
  Request asked = request(byte_tokens("DEF"));
  asked.stop = {"DEFGHIJ"};
  const Answer answer = collect(*loop.submit(asked));
  EXPECT_EQ(answer.text, "GHIJ");
  EXPECT_EQ(answer.last.stop, "");
}

TEST(Generation, ReturnsTextThatWasHeldForAStopStringAtTheEnd) {
  const Answer answer = answer_of("xDEF", {"DEFGHIJ"});
  EXPECT_EQ(answer.text, "xDEF");
  EXPECT_EQ(answer.last.text, "DEF");
  EXPECT_EQ(answer.last.finish, FinishReason::kStop);
}

TEST(Generation, KeepsTheOrderOfHeldTextAndHeldBytes) {
  EXPECT_EQ(answer_of("xST\xE2\x80", {"STOP"}).text, "xST\uFFFD");
}

TEST(Generation, NeverSplitsACharacterBetweenEvents) {
  const std::string output = "a\U0001F60Aé世\U0001F1E9\U0001F1EA";
  const Answer answer = answer_of(output);
  EXPECT_EQ(answer.text, output);
  for (const Event& event : answer.events) {
    EXPECT_TRUE(base::is_valid_utf8(event.text));
    EXPECT_EQ(event.text.find("\uFFFD"), std::string::npos);
  }
}

TEST(Generation, ReplacesInvalidBytesByMaximalSubparts) {
  EXPECT_EQ(answer_of("\xED\xA0\x80").text, "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(answer_of("\xF0\x80\x80"
                      "A")
                .text,
            "\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(answer_of("\xE2\x80"
                      "A")
                .text,
            "\uFFFDA");
  EXPECT_EQ(answer_of("\xC0\xAF").text, "\uFFFD\uFFFD");
  EXPECT_EQ(answer_of("\xF5").text, "\uFFFD");
  EXPECT_EQ(answer_of("\x80").text, "\uFFFD");
  EXPECT_EQ(answer_of("x\xE2\x80").text, "x\uFFFD");
}

TEST(Generation, ReportsLogSoftmaxOfTheRawLogits) {
  std::vector<float> logits(vocabulary(), -3.f);
  logits[40] = 2.f;
  logits[41] = 1.5f;
  logits[50] = 1.5f;
  Loop loop([&](const History&) { return logits; });
  Request asked = request({1});
  asked.max_tokens = 1;
  asked.log_probabilities = 3;
  asked.sampling = {.temperature = 0.f, .logit_bias = {{60, 50.f}}};  // must not show
  const Answer answer = collect(*loop.submit(asked));

  double mass = 0;
  for (const float logit : logits) mass += std::exp(double(logit));
  const Event& event = answer.events.at(0);
  ASSERT_EQ(event.token, 60);
  EXPECT_NEAR(*event.log_probability, -3. - std::log(mass), 1e-12);
  ASSERT_EQ(event.top.size(), 3u);
  EXPECT_EQ(event.top[0].id, 40);
  EXPECT_EQ(event.top[1].id, 41);
  EXPECT_EQ(event.top[2].id, 50);
  EXPECT_NEAR(event.top[0].log_probability, 2. - std::log(mass), 1e-12);
}

TEST(Generation, ListsNoAlternativesUnlessAsked) {
  Loop loop(noise);
  Request asked = request({1});
  asked.max_tokens = 1;
  EXPECT_FALSE(collect(*loop.submit(asked)).events.at(0).log_probability);
  asked.log_probabilities = 0;
  const Event event = collect(*loop.submit(asked)).events.at(0);
  EXPECT_LE(event.log_probability.value(), 0.);
  EXPECT_TRUE(event.top.empty());
}

TEST(Generation, PenalisesTokensOfThePromptAndOfTheAnswer) {
  Loop loop([](const History&) {
    std::vector<float> logits(vocabulary(), -50.f);
    for (TokenId id = 20; id < 25; ++id) logits[std::size_t(id)] = 1.f;
    return logits;
  });
  Request asked = request({20, 22});
  asked.sampling.presence_penalty = 10.f;
  asked.max_tokens = 3;
  EXPECT_EQ(collect(*loop.submit(asked)).tokens, (History{21, 23, 24}));
}

TEST(Generation, DrawsByTheSoftmax) {
  const std::vector<std::pair<TokenId, float>> mass = {{20, 2.f}, {21, 1.f}, {22, 0.f}, {23, 0.f}};
  Loop loop(
      [&](const History&) {
        std::vector<float> logits(vocabulary(), -std::numeric_limits<float>::infinity());
        for (const auto& [id, logit] : mass) logits[std::size_t(id)] = logit;
        return logits;
      },
      {.context = 5000, .pages = 2000});
  Request asked = request({1});
  asked.sampling = {};
  asked.seed = 42;
  asked.max_tokens = 4000;
  const Answer answer = collect(*loop.submit(asked));
  ASSERT_EQ(answer.tokens.size(), 4000u);
  double total = 0;
  for (const auto& [id, logit] : mass) total += std::exp(double(logit));
  for (const auto& [id, logit] : mass) {
    const double p = std::exp(double(logit)) / total;
    const auto count = std::count(answer.tokens.begin(), answer.tokens.end(), id);
    EXPECT_NEAR(double(count), 4000 * p, 4 * std::sqrt(4000 * p * (1 - p))) << id;
  }
}

TEST(Generation, RepeatsASeedAndReportsAFreshOne) {
  Loop loop(noise);
  Request asked = request({1, 20});
  asked.sampling = {};
  asked.max_tokens = 20;
  asked.seed = 42;
  const History first = collect(*loop.submit(asked)).tokens;
  asked.seed = std::nullopt;
  const Answer fresh = collect(*loop.submit(asked));
  const Answer other = collect(*loop.submit(asked));
  EXPECT_NE(fresh.last.usage.seed, other.last.usage.seed);
  asked.seed = 42;
  EXPECT_EQ(collect(*loop.submit(asked)).tokens, first);
  asked.seed = fresh.last.usage.seed;
  EXPECT_EQ(collect(*loop.submit(asked)).tokens, fresh.tokens);
  EXPECT_NE(fresh.tokens, first);
}

TEST(Generation, NeverChoosesAnIdThatTheTokenizerLacks) {
  // A model with more output rows than tokens.
  auto facts = std::make_shared<ModelFacts>(ModelFacts{tokenizer(), vocabulary() + 5, 64, false});
  Request asked = request({1});
  asked.max_tokens = 1;
  GenerationJob job(asked, facts);
  state::Layout layout({}, {});
  state::PagePool pool(layout, {});
  ASSERT_TRUE(job.start(pool));
  std::vector<float> logits(vocabulary() + 5, 0.f);
  logits[vocabulary() + 2] = 50.f;
  logits[30] = 1.f;
  job.sequence().reserve(1);
  job.sequence().commit(History{1}, TokenClass::kEntered);
  EXPECT_FALSE(job.advance(1, logits));
  EXPECT_EQ(job.next()->token, 30);
}

TEST(Generation, ReportsTheProgressOfItsPrefill) {
  Loop loop(noise, {.max_rows = 4});
  std::vector<double> fractions;
  Request asked = request(History(10, 20));
  asked.max_tokens = 2;
  asked.progress = [&](std::string_view stage, double fraction) {
    EXPECT_EQ(stage, "prefill");
    fractions.push_back(fraction);
  };
  collect(*loop.submit(asked));
  EXPECT_EQ(fractions, (std::vector<double>{0.4, 0.8, 1.0}));
}

TEST(Generation, EndsWithTheErrorOfItsOwnCallbackAndThrowsItOnce) {
  Loop loop(noise);
  Request asked = request({1, 20});
  asked.progress = [](std::string_view, double) { throw Error(ErrorKind::kIo, "no terminal"); };
  const auto job = loop.submit(asked);
  EXPECT_EQ(usage_error([&] { job->next(); }, ErrorKind::kIo), "no terminal");
  EXPECT_FALSE(job->next());
}

TEST(Generation, RefusesParametersOutOfRangeNamingTheField) {
  Loop loop(noise);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  using Change = std::function<void(Request&)>;
  const std::vector<std::pair<const char*, Change>> cases = {
      {"temperature", [&](Request& r) { r.sampling.temperature = nan; }},
      {"temperature", [&](Request& r) { r.sampling.temperature = -1.f; }},
      {"temperature", [&](Request& r) { r.sampling.temperature = inf; }},
      {"top_p", [&](Request& r) { r.sampling.top_p = nan; }},
      {"top_p", [&](Request& r) { r.sampling.top_p = 1.5f; }},
      {"min_p", [&](Request& r) { r.sampling.min_p = -0.1f; }},
      {"repetition_penalty", [&](Request& r) { r.sampling.repetition_penalty = 0.f; }},
      {"presence_penalty", [&](Request& r) { r.sampling.presence_penalty = nan; }},
      {"frequency_penalty", [&](Request& r) { r.sampling.frequency_penalty = inf; }},
      {"logit_bias",
       [&](Request& r) {
         r.sampling.logit_bias = {{3, nan}};
       }},
      {"logit_bias",
       [&](Request& r) {
         r.sampling.logit_bias = {{TokenId(vocabulary()), 1.f}};
       }},
      {"log_probabilities", [&](Request& r) { r.log_probabilities = 21; }},
      {"log_probabilities", [&](Request& r) { r.log_probabilities = -2; }},
      {"stop", [&](Request& r) { r.stop = {""}; }},
      {"stop",
       [&](Request& r) {
         r.stop = {"ok", "\xFF"};
       }},
      {"prompt", [&](Request& r) { r.prompt = {}; }},
      {"prompt",
       [&](Request& r) {
         r.prompt = {1, -1};
       }},
      {"prompt",
       [&](Request& r) {
         r.prompt = {1, TokenId(vocabulary())};
       }},
  };
  for (const auto& [field, change] : cases) {
    Request asked = request({1});
    change(asked);
    EXPECT_THAT(usage_error([&] { loop.submit(asked); }), HasSubstr(field));
  }
  EXPECT_EQ(loop.machine.rows, 0u);
}

}  // namespace
}  // namespace lemma::runtime
