// SPDX-License-Identifier: Apache-2.0
// Requests beside each other: company, cancellation, failures, pages.
#include "runtime/step_loop.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "runtime/scripted_machine.hpp"

namespace lemma::runtime {
namespace {

using namespace scripted;
using ::testing::HasSubstr;

Request request(History prompt, std::size_t max_tokens) {
  Request made;
  made.prompt = std::move(prompt);
  made.seed = 7;
  made.max_tokens = max_tokens;
  return made;
}

/// Requests of different lengths, all sampled at temperature 1.
std::vector<Request> some_requests() {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(request(History(std::size_t(3 + 5 * i), TokenId(20 + i)), 25));
    requests.back().seed = std::uint64_t(100 + i);
  }
  return requests;
}

std::string failure_of(GenerationJob& job, ErrorKind kind) {
  try {
    collect(job);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "the request did not fail";
  return {};
}

TEST(StepLoop, GivesEachRequestWhatItGetsAlone) {
  std::vector<History> alone;
  for (const Request& asked : some_requests()) {
    Loop loop(noise);
    alone.push_back(collect(*loop.submit(asked)).tokens);
    EXPECT_EQ(alone.back().size(), 25u);
  }
  for (const std::uint32_t sequences : {1u, 3u, 6u}) {
    Loop loop(noise, {.max_rows = 7, .max_sequences = sequences});
    std::vector<std::shared_ptr<GenerationJob>> jobs;
    for (const Request& asked : some_requests()) jobs.push_back(loop.submit(asked));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(collect(*jobs[i]).tokens, alone[i]) << sequences << " sequences, request " << i;
    }
  }
}

TEST(StepLoop, NeverMixesConversationsThatShareFewSlots) {
  // Each conversation carries its own marker; what it must get was computed without any loop.
  const auto answer_alone = [](History history, std::size_t tokens) {
    const std::size_t prompt = history.size();
    for (std::size_t i = 0; i < tokens; ++i) {
      const std::vector<float> logits = noise(history);
      history.push_back(TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
    return History(history.begin() + std::ptrdiff_t(prompt), history.end());
  };
  Loop loop(noise, {.max_rows = 9, .max_sequences = 3, .pages = 36});
  std::uint32_t state = 12345;
  for (int round = 0; round < 4; ++round) {
    std::vector<Request> requests;
    std::vector<std::shared_ptr<GenerationJob>> jobs;
    for (int i = 0; i < 64; ++i) {
      state = state * 1664525u + 1013904223u;
      requests.push_back(request(History(1 + (state >> 20) % 30, TokenId(20 + i)), 5));
      requests.back().sampling.temperature = 0.f;
      jobs.push_back(loop.submit(requests.back()));
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(collect(*jobs[i]).tokens, answer_alone(requests[i].prompt, 5)) << i;
    }
  }
}

TEST(StepLoop, NeverStepsMoreRowsOrSequencesThanAllowed) {
  Loop loop(noise, {.max_rows = 7, .max_sequences = 3});
  std::size_t most_rows = 0, most_sequences = 0;
  loop.machine.before_step = [&](const backend::Step& step) {
    most_rows = std::max(most_rows, step.tokens.size());
    most_sequences = std::max(most_sequences, step.segments.size());
  };
  std::vector<std::shared_ptr<GenerationJob>> jobs;
  for (const Request& asked : some_requests()) jobs.push_back(loop.submit(asked));
  for (const auto& job : jobs) collect(*job);
  EXPECT_EQ(most_rows, 7u);
  EXPECT_EQ(most_sequences, 3u);
}

TEST(StepLoop, NeverStartsARequestThatWasCancelledInTheQueue) {
  Loop loop(noise, {.max_sequences = 1});
  Gate gate;
  loop.machine.before_step = [&](const backend::Step&) { gate.pass(); };
  const auto first = loop.submit(request({20}, 3));
  gate.await(1);
  const auto second = loop.submit(request({30, 31}, 3));
  second->request_cancel();
  gate.open();
  EXPECT_EQ(collect(*second).last.finish, FinishReason::kCancelled);
  EXPECT_EQ(collect(*first).tokens.size(), 3u);
  loop.stop();
  EXPECT_EQ(loop.machine.rows, 3u);
}

TEST(StepLoop, CancelsALongPrefillBetweenSteps) {
  Loop loop(noise, {.max_rows = 8});
  Gate gate;
  loop.machine.before_step = [&](const backend::Step&) { gate.pass(); };
  const auto job = loop.submit(request(History(40, 20), 3));
  gate.await(1);
  job->request_cancel();
  gate.open();
  const Answer answer = collect(*job);
  EXPECT_EQ(answer.last.finish, FinishReason::kCancelled);
  EXPECT_TRUE(answer.tokens.empty());
  EXPECT_EQ(loop.machine.rows, 8u);
  EXPECT_EQ(loop.loop.state_used(), 0u);
}

TEST(StepLoop, CancelsARunningAnswerFromAnotherThread) {
  Loop loop(noise, {.context = 1u << 20, .pages = 1u << 18});
  const auto job = loop.submit(request({20}, 1u << 20));
  std::thread canceller([&] {
    while (loop.machine.rows < 20) std::this_thread::yield();
    job->request_cancel();
    loop.loop.wake();
  });
  const Answer answer = collect(*job);
  canceller.join();
  EXPECT_EQ(answer.last.finish, FinishReason::kCancelled);
  EXPECT_GE(answer.tokens.size(), 20u);
  EXPECT_EQ(answer.last.usage.generated_tokens, answer.tokens.size());
}

TEST(StepLoop, WakesForACancellationWhileItSleeps) {
  Loop loop(noise);
  loop.start();
  loop.loop.wake();  // nothing to do
  EXPECT_EQ(collect(*loop.submit(request({20}, 2))).tokens.size(), 2u);
}

TEST(StepLoop, CancelsWhatIsLeftWhenItStops) {
  Loop loop(noise, {.max_sequences = 1, .context = 1u << 20, .pages = 1u << 18});
  Gate gate;
  loop.machine.before_step = [&](const backend::Step&) { gate.pass(); };
  const auto running = loop.submit(request({20}, 1u << 20));
  gate.await(1);
  const auto waiting = loop.submit(request({20}, 5));
  loop.loop.stop();
  gate.open();
  EXPECT_EQ(collect(*running).last.finish, FinishReason::kCancelled);
  EXPECT_EQ(collect(*waiting).last.finish, FinishReason::kCancelled);
  loop.stop();
  EXPECT_EQ(collect(*loop.submit(request({20}, 5))).last.finish, FinishReason::kCancelled);
}

TEST(StepLoop, FailsOnlyTheRequestWhoseRowsAreNotFinite) {
  std::vector<Request> requests = some_requests();
  requests.resize(4);
  std::vector<History> alone;
  for (const Request& asked : requests) {
    Loop loop(noise);
    alone.push_back(collect(*loop.submit(asked)).tokens);
  }
  Loop loop(noise);
  loop.machine.result = [](const History& history) {
    const bool bad = history[0] == 22 && history.size() > 20;
    return bad ? backend::SegmentResult{backend::SegmentStatus::kNonFinite, 0}
               : backend::SegmentResult{};
  };
  std::vector<std::shared_ptr<GenerationJob>> jobs;
  for (const Request& asked : requests) jobs.push_back(loop.submit(asked));
  EXPECT_THAT(failure_of(*jobs[2], ErrorKind::kNonFinite), HasSubstr("layers.0.attention.query"));
  for (const std::size_t i : {0u, 1u, 3u}) EXPECT_EQ(collect(*jobs[i]).tokens, alone[i]) << i;
  EXPECT_EQ(loop.loop.state_used(), 0u);
}

TEST(StepLoop, FailsOnlyTheRequestWhoseLogitsAreNotFinite) {
  Loop loop([](const History& history) {
    std::vector<float> logits = noise(history);
    if (history[0] == 21 && history.size() > 4) {
      logits[0] = std::numeric_limits<float>::quiet_NaN();
    }
    return logits;
  });
  const auto good = loop.submit(request({20}, 10));
  const auto bad = loop.submit(request({21}, 10));
  failure_of(*bad, ErrorKind::kNonFinite);
  EXPECT_EQ(collect(*good).tokens.size(), 10u);
}

TEST(StepLoop, FailsOnlyTheRequestForWhichThereAreNoPages) {
  Loop loop(noise, {.max_rows = 64, .pages = 6});  // 24 positions
  Gate gate;
  loop.machine.before_step = [&](const backend::Step&) { gate.pass(); };
  const auto first = loop.submit(request({20, 20}, 10));
  gate.await(1);
  const auto large = loop.submit(request(History(30, 21), 10));
  const auto small = loop.submit(request({22, 22}, 10));
  gate.open();
  failure_of(*large, ErrorKind::kOutOfMemory);
  EXPECT_EQ(collect(*first).tokens.size(), 10u);
  EXPECT_EQ(collect(*small).tokens.size(), 10u);
}

TEST(StepLoop, KeepsNoPageAfterManyTurns) {
  Loop loop(noise, {.max_rows = 8, .pages = 40});
  for (int turn = 0; turn < 200; ++turn) {
    const auto asked = request(History(std::size_t(1 + turn % 30), 20), std::size_t(1 + turn % 7));
    const auto job = loop.submit(asked);
    if (turn % 5 == 0) job->request_cancel();
    const Answer answer = collect(*job);
    ASSERT_TRUE(answer.last.finish.has_value()) << turn;
    ASSERT_EQ(loop.loop.state_used(), 0u) << turn;
  }
}

TEST(StepLoop, ReadsPromptsInOneStepWhereRowsLookAhead) {
  Loop loop(noise, {.max_rows = 8, .max_sequences = 3, .whole_prompts = true});
  std::vector<std::shared_ptr<GenerationJob>> jobs;
  for (const std::size_t length : {6u, 5u, 8u}) {
    auto job = std::make_shared<GenerationJob>(request(History(length, 20), 1), loop.facts);
    loop.loop.submit(job);
    jobs.push_back(std::move(job));
  }
  loop.start();
  for (const auto& job : jobs) EXPECT_EQ(collect(*job).tokens.size(), 1u);
  loop.stop();
  EXPECT_EQ(loop.machine.ran, (std::vector<RanSegment>{{0, 6, state::TokenClass::kEntered},
                                                       {0, 5, state::TokenClass::kEntered},
                                                       {0, 8, state::TokenClass::kEntered}}));
}

TEST(StepLoop, RefusesAPromptThatIsLongerThanAStepWhereRowsLookAhead) {
  Loop loop(noise, {.max_rows = 8, .whole_prompts = true});
  const auto job = loop.submit(request(History(9, 20), 1));
  const std::string message = failure_of(*job, ErrorKind::kContextFull);
  EXPECT_THAT(message, HasSubstr("9 tokens"));
  EXPECT_THAT(message, HasSubstr("8 rows (step_rows)"));
}

}  // namespace
}  // namespace lemma::runtime
