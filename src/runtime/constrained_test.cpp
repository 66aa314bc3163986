// SPDX-License-Identifier: Apache-2.0
// Requests whose text must have a form, against scripted logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/generation.hpp"
#include "runtime/scripted_machine.hpp"

namespace lemma::runtime {
namespace {

using namespace scripted;
using ::testing::HasSubstr;

Request text_request() {
  Request made;
  made.prompt = {1};
  made.sampling = {.temperature = 0.f};
  return made;
}

template <typename Function>
std::string usage_error(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Constrained, GivesATextOfItsFormWhateverTheLogitsPrefer) {
  Loop loop(noise, {.context = 256});
  Request asked = text_request();
  asked.sampling = {.temperature = 1.f};
  asked.seed = 5;
  asked.constraint = Constraint::grammar("root ::= [ab]{3} \"-\" [ab]{2}");
  const Answer answer = collect(*loop.submit(asked));
  EXPECT_THAT(answer.text, ::testing::MatchesRegex("[ab][ab][ab]-[ab][ab]"));
  EXPECT_EQ(answer.last.finish, FinishReason::kStop);
}

TEST(Constrained, EndsWithoutAnEndTokenWhereNothingMayFollow) {
  Loop loop(emit(1, byte_tokens("abc")));
  Request asked = text_request();
  asked.constraint = Constraint::grammar("root ::= \"ab\"");
  const Answer answer = collect(*loop.submit(asked));
  EXPECT_EQ(answer.text, "ab");
  EXPECT_EQ(answer.last.finish, FinishReason::kStop);
  EXPECT_EQ(answer.last.usage.decode_rounds, answer.tokens.size() - 1);
}

TEST(Constrained, EndsAtTheEndTokenOnlyWhereTheTextMayEnd) {
  // The model wants to end at once, and again at every turn.
  Loop loop([](const History&) { return prefer(kEnd); });
  Request asked = text_request();
  asked.constraint = Constraint::grammar("root ::= \"aa\" \"a\"*");
  const Answer answer = collect(*loop.submit(asked));
  EXPECT_THAT(answer.text, ::testing::AnyOf("aa", "aaa", "aaaa", "aaaaaaaa"));
  EXPECT_EQ(answer.last.finish, FinishReason::kStop);
}

TEST(Constrained, ChoosesTheSameWhereNothingIsExcluded) {
  Request asked = text_request();
  asked.sampling = {.temperature = 0.7f, .repetition_penalty = 1.3f};
  asked.seed = 11;
  asked.max_tokens = 20;
  asked.log_probabilities = 2;
  Loop free(noise), bound(noise);
  const Answer expected = collect(*free.submit(asked));
  asked.constraint = Constraint::grammar("root ::= \"x\"");
  asked.constraint->triggers = {"a text that never comes"};
  const Answer answer = collect(*bound.submit(asked));
  EXPECT_EQ(answer.tokens, expected.tokens);
  for (std::size_t i = 0; i < expected.events.size(); ++i)
    EXPECT_EQ(answer.events[i].log_probability, expected.events[i].log_probability);
}

TEST(Constrained, DrawsAgainWhereATokenBeginsTheFormWrongly) {
  Loop loop([](const History& history) {
    std::vector<float> logits = prefer(byte_token('!'));
    if (history.size() == 1) logits[std::size_t(byte_token('>'))] = 20.f;
    logits[std::size_t(byte_token('o'))] = 5.f;
    return logits;
  });
  Request asked = text_request();
  asked.constraint = Constraint::grammar("root ::= \">o\"");
  asked.constraint->triggers = {">"};
  EXPECT_EQ(collect(*loop.submit(asked)).text, ">o");
}

TEST(Constrained, FailsAloneWhereNothingIsAllowed) {
  Loop loop(emit(1, byte_tokens("ok")), {.context = 256});
  Request hopeless = text_request();
  // This vocabulary has every byte, so the dead end is one of depth.
  hopeless.constraint = Constraint::grammar(
      "root ::= \"(\" root \")\" | \"x\"{2000,} root2\n"
      "root2 ::= \"y\"");
  hopeless.sampling.logit_bias = {{byte_token('x'), -std::numeric_limits<float>::infinity()},
                                  {byte_token('('), -std::numeric_limits<float>::infinity()}};
  const auto job = loop.submit(hopeless);
  const auto other = loop.submit(text_request());
  EXPECT_THAT(usage_error([&] { collect(*job); }), HasSubstr("excluded"));
  EXPECT_EQ(collect(*other).text, "ok");
}

TEST(Constrained, RefusesAMalformedFormWhenTheRequestIsMade) {
  Loop loop(noise);
  Request asked = text_request();
  asked.constraint = Constraint::grammar("root ::= \"a");
  EXPECT_THAT(usage_error([&] { loop.submit(asked); }), HasSubstr("line 1, column 12"));
  asked.constraint = Constraint::json_schema(R"({"properties": {"a": {"contains": {}}}})");
  EXPECT_THAT(usage_error([&] { loop.submit(asked); }), HasSubstr("#/properties/a/contains"));
  asked.constraint = Constraint::json_object();
  asked.stop_at_end = false;
  EXPECT_THAT(usage_error([&] { loop.submit(asked); }), HasSubstr("stop_at_end"));
}

}  // namespace
}  // namespace lemma::runtime
