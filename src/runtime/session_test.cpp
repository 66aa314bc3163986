// SPDX-License-Identifier: Apache-2.0
// What a session does for a program that talks: choosing tokens, watching and ending long calls.
#include "lemma/session.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "lemma/engine.hpp"
#include "test_data.hpp"

namespace lemma {
namespace {

using Ids = std::vector<TokenId>;

constexpr const char* kGolden = "goldens/llama-gqa/model.gguf";

Ids numbers(std::size_t count) {
  Ids ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(TokenId(7 * i % 500 + 3));
  return ids;
}

TEST(SessionTest, ChoosesWhatAGenerationWithTheSameSeedChooses) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const auto engine = Engine::open(path, {.threads = 1});
  const Sampling sampling{.temperature = 1.f, .top_k = 50, .repetition_penalty = 1.2f};
  Generation generation = engine->submit({.prompt = numbers(9),
                                          .sampling = sampling,
                                          .seed = 5,
                                          .max_tokens = 20,
                                          .stop_at_end = false});
  Ids expected;
  while (const auto event = generation.next())
    if (event->token) expected.push_back(*event->token);

  Session session = engine->session();
  session.append(numbers(9));
  Sampler sampler(sampling, 5);
  EXPECT_EQ(sampler.seed(), 5u);
  Ids chosen;
  while (chosen.size() < expected.size()) {
    chosen.push_back(session.choose(sampler));
    session.decode(chosen.back());
  }
  EXPECT_EQ(chosen, expected);
  session.rewind(3);
  EXPECT_THROW(session.choose(sampler), Error) << "there are no logits after a rewind";
  EXPECT_THROW(Sampler({.temperature = -1.f}), Error);
}

TEST(SessionTest, EndsACallThatIsAskedToStop) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const auto engine = Engine::open(path, {.threads = 1, .max_sequences = 1, .step_rows = 8});
  Session session = engine->session();
  session.append(numbers(5));
  std::stop_source stop;
  std::vector<double> seen;
  try {
    session.append(numbers(100), {.stop = stop.get_token(), .progress = [&](double fraction) {
                                    seen.push_back(fraction);
                                    stop.request_stop();
                                  }});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCancelled);
  }
  EXPECT_EQ(seen, std::vector<double>{0.08});
  EXPECT_EQ(session.length(), 5u);
  session.append(numbers(2));
  EXPECT_EQ(session.length(), 7u);
}

}  // namespace
}  // namespace lemma
