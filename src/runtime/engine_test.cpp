// SPDX-License-Identifier: Apache-2.0
// The public API over small real models, on both backends.
#include "lemma/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "runtime/engine_core.hpp"
#include "runtime/engine_test_parts.hpp"
#include "test_data.hpp"

namespace lemma {
namespace {

using ::testing::HasSubstr;
constexpr const char* kStories = "models/stories260K-f32.gguf";

/// Counts the rows that the backend runs, and what the marked sequence's rows become.
class Watcher final : public backend::Observer {
 public:
  explicit Watcher(TokenId poisoned = -1) : poisoned_(poisoned) {}

  bool wants(const backend::Program::Site& site) override {
    return site.name == "embedding" || (poisoned_ >= 0 && site.name == "layers.0.attention.query");
  }
  void observe(std::int32_t, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> values) override {
    if (site.name == "embedding") {
      rows += step.tokens.size();
      return;
    }
    for (const backend::Segment& segment : step.segments) {
      const auto held = segment.sequence->tokens();
      const TokenId first = held.empty() ? step.tokens[segment.first_row] : held[0];
      if (first != poisoned_ || segment.past < 12) continue;
      values[segment.first_row * site.width] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  std::atomic<std::size_t> rows{0};

 private:
  const TokenId poisoned_;
};

class EngineTest : public AnyBackendTest {};

INSTANTIATE_TEST_SUITE_P(Backends, EngineTest,
                         testing::Values(BackendKind::kReference, BackendKind::kCpu), backend_name);

TEST_P(EngineTest, TellsAStory) {
  LEMMA_TEST_DATA_OR_SKIP(path, kStories);
  const auto engine = Engine::open(path, options());
  Generation generation =
      engine->submit(request(engine->tokenizer().encode("Once upon a time"), 24, 0.f));
  const Answer answer = collect(generation);
  // Start of the published text, shared goldens "stories260K/greedy.json".
  EXPECT_THAT(answer.text, testing::StartsWith(", there was a little girl named Lily. She loved"));
  EXPECT_EQ(answer.last.finish, FinishReason::kLength);
  EXPECT_EQ(answer.last.usage.prompt_tokens, 5u);
  EXPECT_EQ(answer.last.usage.generated_tokens, 24u);
  EXPECT_EQ(answer.last.usage.seed, 11u);
}

TEST_P(EngineTest, GivesInterleavedGenerationsWhatEachGetsAlone) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  EngineOptions narrow = options();
  narrow.step_rows = 9;
  const auto engine = Engine::open(path, narrow);
  std::vector<Request> requests;
  for (const std::size_t length : {3u, 20u, 33u}) {
    requests.push_back(request(numbers(length, TokenId(length)), 30));
    requests.back().seed = length;
  }
  std::vector<Ids> alone;
  for (const Request& asked : requests) {
    Generation generation = engine->submit(asked);
    alone.push_back(collect(generation).tokens);
    EXPECT_EQ(alone.back().size(), 30u);
  }
  std::vector<Generation> together;
  for (const Request& asked : requests) together.push_back(engine->submit(asked));
  for (std::size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(collect(together[i]).tokens, alone[i]) << i;
  }
}

/// Logits after a prompt and after each of some greedy tokens.
std::vector<std::vector<float>> drive(Session session, const Ids& prompt, int tokens) {
  std::vector<std::vector<float>> rows;
  session.sync(prompt);
  for (int i = 0;; ++i) {
    rows.emplace_back(session.logits().begin(), session.logits().end());
    if (i == tokens) return rows;
    session.decode(best(session.logits()));
  }
}

TEST_P(EngineTest, GivesInterleavedSessionsTheSameBitsAsAlone) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  EngineOptions narrow = options();
  narrow.step_rows = 8;
  const auto engine = Engine::open(path, narrow);
  const std::vector<Ids> prompts = {numbers(2), numbers(19, 50), numbers(40, 90)};
  std::vector<std::vector<std::vector<float>>> alone, together(prompts.size());
  for (const Ids& prompt : prompts) alone.push_back(drive(engine->session(), prompt, 20));
  {
    Generation company = engine->submit(request(numbers(60, 3), 100));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      threads.emplace_back([&, i] { together[i] = drive(engine->session(), prompts[i], 20); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(together[i], alone[i]) << i;
}

TEST_P(EngineTest, GivesTheSameBitsForAPromptOfAnyLengthHoweverItIsCut) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  EngineOptions cut = options();
  cut.step_rows = 16;
  cut.max_sequences = 2;
  cut.context = 100;
  const auto engine = Engine::open(path, cut);
  const Ids prompt = numbers(99);
  Session stepwise = engine->session();
  std::size_t done = 0;
  for (const std::size_t length : {1u, 15u, 16u, 17u, 64u, 99u}) {
    for (; done < length; ++done) stepwise.append(std::span(prompt).subspan(done, 1));
    Session whole = engine->session();
    whole.sync(std::span(prompt).first(length));
    EXPECT_TRUE(std::ranges::equal(whole.logits(), stepwise.logits())) << length;
  }
}

TEST_P(EngineTest, ComputesTenRowsForTenTokensAfterAThousand) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  Watcher watcher;
  backend::Observer* const observers[] = {&watcher};
  EngineOptions longer = options();
  longer.context = 2048;
  longer.max_sequences = 1;
  std::mutex mutex;
  std::string warnings;
  base::set_log_sink(
      [&](base::LogLevel, std::string_view text) {
        std::lock_guard lock(mutex);
        warnings += text;
      },
      base::LogLevel::kWarning);
  const auto engine = runtime::EngineAccess::open(path, longer, {.observers = observers});
  base::set_log_sink({});
  EXPECT_THAT(warnings, HasSubstr("2048"));  // more than the model was made for, and said so
  EXPECT_THAT(warnings, HasSubstr("256"));

  Session session = engine->session();
  const Ids tokens = numbers(1010);
  const SyncResult first = session.sync(std::span(tokens).first(1000));
  EXPECT_EQ(first.computed, 1000u);
  EXPECT_EQ(watcher.rows, 1000u);
  const SyncResult second = session.sync(tokens);
  EXPECT_EQ(second.reused, 1000u);
  EXPECT_EQ(second.computed, 10u);
  EXPECT_EQ(second.reason, "");
  EXPECT_EQ(watcher.rows, 1010u);
  const SyncResult third = session.sync(tokens);
  EXPECT_EQ(third.computed, 0u);
  EXPECT_EQ(watcher.rows, 1010u);
}

TEST_P(EngineTest, RewindsAndGeneratesTheSameAgain) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const auto engine = Engine::open(path, options());
  Session session = engine->session();
  EXPECT_TRUE(session.logits().empty());
  const Ids prompt = numbers(30);
  session.sync(prompt);
  std::vector<std::vector<float>> first, second;
  for (std::vector<std::vector<float>>* rows : {&first, &second}) {
    for (int i = 0; i < 10; ++i) {
      rows->emplace_back(session.logits().begin(), session.logits().end());
      session.decode(best(session.logits()));
    }
    EXPECT_EQ(session.length(), 40u);
    const RewindResult result = session.rewind(30);
    EXPECT_EQ(result.length, 30u);
    EXPECT_EQ(result.reason, "");
    EXPECT_TRUE(session.logits().empty());
    EXPECT_EQ(session.sync(prompt).computed, 1u);
  }
  EXPECT_EQ(first, second);
}

TEST_P(EngineTest, ContinuesNoTextWithAnEncoder) {
  LEMMA_TEST_DATA_OR_SKIP(path, "goldens/bert/model.gguf");
  const auto engine = Engine::open(path, options());
  EXPECT_GT(engine->tokenizer().vocabulary_size(), 0u);
  EXPECT_THAT(error_of(ErrorKind::kUnsupported, [&] { engine->submit(request(numbers(3), 1)); }),
              HasSubstr("hidden states"));
  Session session = engine->session();
  error_of(ErrorKind::kUnsupported, [&] { session.sync(numbers(3)); });
}

TEST_P(EngineTest, LetsOneOfFourSequencesFailAlone) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  std::vector<Request> requests;
  for (TokenId i = 0; i < 4; ++i) {
    requests.push_back(request(numbers(5, i), 20));
    requests.back().prompt[0] = 200 + i;
  }
  std::vector<Ids> expected;
  {
    const auto engine = Engine::open(path, options());
    for (const Request& asked : requests) {
      Generation generation = engine->submit(asked);
      expected.push_back(collect(generation).tokens);
    }
  }
  Watcher watcher(202);
  backend::Observer* const observers[] = {&watcher};
  const auto engine = runtime::EngineAccess::open(path, options(), {.observers = observers});
  std::vector<Generation> generations;
  for (const Request& asked : requests) generations.push_back(engine->submit(asked));
  const std::string message = error_of(ErrorKind::kNonFinite, [&] { collect(generations[2]); });
  EXPECT_THAT(message, HasSubstr("layers.0.attention"));
  for (const std::size_t i : {0u, 1u, 3u}) {
    EXPECT_EQ(collect(generations[i]).tokens, expected[i]) << i;
  }
  EXPECT_EQ(engine->memory().state_used, 0u);
}

TEST_P(EngineTest, NamesBothNumbersWhenTheContextOverflows) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  EngineOptions small = options();
  small.context = 40;
  const auto engine = Engine::open(path, small);
  const auto expect_both = [](const std::string& message) {
    EXPECT_THAT(message, HasSubstr("41"));
    EXPECT_THAT(message, HasSubstr("40"));
  };
  expect_both(error_of(ErrorKind::kContextFull, [&] { engine->submit(request(numbers(41), 1)); }));
  Session session = engine->session();
  expect_both(error_of(ErrorKind::kContextFull, [&] { session.sync(numbers(41)); }));
  session.sync(numbers(40));
  const std::vector<float> logits(session.logits().begin(), session.logits().end());
  expect_both(error_of(ErrorKind::kContextFull, [&] { session.decode(5); }));
  expect_both(error_of(ErrorKind::kContextFull, [&] { session.append(numbers(1)); }));
  EXPECT_EQ(session.length(), 40u);
  EXPECT_TRUE(std::ranges::equal(session.logits(), logits));
}

TEST_P(EngineTest, RefusesWhatASessionCannotDo) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const auto engine = Engine::open(path, options());
  Session session = engine->session();
  error_of(ErrorKind::kUsage, [&] { session.sync({}); });
  error_of(ErrorKind::kUsage, [&] { session.decode(5); });
  error_of(ErrorKind::kUsage, [&] { session.sync(Ids{5, 512}); });
  error_of(ErrorKind::kUsage, [&] { session.sync(Ids{-1}); });
  error_of(ErrorKind::kUsage, [&] { session.rewind(1); });
  EXPECT_EQ(session.length(), 0u);
}

TEST_P(EngineTest, ReportsItsMemory) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const auto engine = Engine::open(path, options());
  EXPECT_EQ(engine->memory().mapped, std::filesystem::file_size(path));
  EXPECT_EQ(engine->memory().state_used, 0u);
  {
    Session session = engine->session();
    session.sync(numbers(10));
    const MemoryUse use = engine->memory();
    EXPECT_GT(use.state_used, 0u);
    EXPECT_LE(use.state_used, use.state_allocated);
  }
  Session other = engine->session();  // its first step comes after the end of the one before
  Generation generation = engine->submit(request(numbers(10), 1));
  collect(generation);
  EXPECT_EQ(engine->memory().state_used, 0u);
}

TEST(Engine, LivesAsLongAsAGeneration) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  auto engine = Engine::open(path, {.backend = BackendKind::kReference});
  Generation generation = engine->submit(request(numbers(5), 10));
  engine.reset();
  EXPECT_EQ(collect(generation).tokens.size(), 10u);
}

TEST(Engine, EndsWithGenerationsThatNobodyReads) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  auto engine = Engine::open(path, {.backend = BackendKind::kReference});
  for (int i = 0; i < 20; ++i) engine->submit(request(numbers(5), 200));
  Generation last = engine->submit(request(numbers(5), 200));
  engine.reset();
}

TEST(Engine, EndsOnItsOwnThreadWhenACallbackHoldsItLast) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  auto engine = Engine::open(path, {.backend = BackendKind::kReference});
  std::weak_ptr<Engine> alive = engine;
  {
    Request asked = request(numbers(100), 100);
    asked.progress = [engine](std::string_view, double) {};
    engine->submit(std::move(asked));
  }
  engine.reset();
  while (!alive.expired()) std::this_thread::yield();
}

TEST(Engine, CancelsFromAnotherThread) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const auto engine = Engine::open(path, {.backend = BackendKind::kReference});
  Generation generation = engine->submit(request(numbers(5), 250));
  ASSERT_TRUE(generation.next());
  std::thread canceller([&] { generation.cancel(); });
  const Answer answer = collect(generation);
  canceller.join();
  EXPECT_EQ(answer.last.finish, FinishReason::kCancelled);
  EXPECT_FALSE(generation.next());
}

TEST(Engine, RefusesOptionsOutOfRange) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { Engine::open(path, {.max_sequences = 0}); }),
              HasSubstr("max_sequences"));
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { Engine::open(path, {.step_rows = 3}); }),
              HasSubstr("step_rows"));
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { Engine::open(path, {.threads = -1}); }),
              HasSubstr("threads"));
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { Engine::open(path, {.context = 1u << 30}); }),
              HasSubstr("context"));
}

TEST(Engine, NamesAFileThatDoesNotExist) {
  EXPECT_THAT(error_of(ErrorKind::kNotFound, [] { Engine::open("no-such-model.gguf"); }),
              HasSubstr("no-such-model.gguf"));
}

TEST(Engine, DescribesTheModel) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  std::vector<double> fractions;
  EngineOptions options{.backend = BackendKind::kReference};
  options.progress = [&](std::string_view, double fraction) { fractions.push_back(fraction); };
  const auto engine = Engine::open(path, options);
  const ModelInfo& info = engine->info();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.context, 256u);
  EXPECT_EQ(info.trained_context, 256u);
  EXPECT_EQ(info.vocabulary, 512u);
  EXPECT_EQ(info.layers, 2u);
  EXPECT_EQ(info.width, 64u);
  EXPECT_GT(info.parameters, 100000u);
  EXPECT_NE(info.backend, "");
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  EXPECT_EQ(fractions.front(), 0.0);
  EXPECT_EQ(fractions.back(), 1.0);
  EXPECT_EQ(std::count(fractions.begin(), fractions.end(), 1.0), 1);
}

TEST(Tokenizer, OpensFromMetadataAlone) {
  LEMMA_TEST_DATA_OR_SKIP(path, kStories);
  const Tokenizer tokenizer = Tokenizer::open(path);
  const Ids ids = tokenizer.encode("Once upon a time");
  EXPECT_EQ(ids, (Ids{1, 403, 407, 261, 378}));
  EXPECT_EQ(tokenizer.decode(ids), "Once upon a time");
  TextStream stream = tokenizer.stream();
  std::string text;
  for (const TokenId id : ids) text += stream.push(id);
  EXPECT_EQ(text + stream.finish(), " Once upon a time");
  EXPECT_TRUE(tokenizer.is_end_of_generation(2));
  EXPECT_EQ(tokenizer.bos(), 1);
}

}  // namespace
}  // namespace lemma
