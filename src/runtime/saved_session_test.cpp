// SPDX-License-Identifier: Apache-2.0
// Sessions that are saved, restored and cut back, on both backends.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lemma/engine.hpp"
#include "runtime/engine_test_parts.hpp"
#include "test_data.hpp"

namespace lemma {
namespace {

using namespace std::string_view_literals;

/// Rows of keys and values; recurrent state beside them; compressed rows with their frontier.
class SavedSessionTest : public testing::TestWithParam<std::tuple<BackendKind, const char*>> {
 protected:
  EngineOptions options() const {
    EngineOptions made;
    made.backend = std::get<0>(GetParam());
    made.kv = KvFormat::kF32;
    made.step_rows = 24;
    return made;
  }
  std::string model() const {
    return std::string("goldens/") + std::get<1>(GetParam()) + "/model.gguf";
  }
};

std::string model_name(const testing::TestParamInfo<SavedSessionTest::ParamType>& info) {
  std::string name = std::get<1>(info.param);
  std::erase(name, '-');
  return name + (std::get<0>(info.param) == BackendKind::kCpu ? "Cpu" : "Reference");
}

INSTANTIATE_TEST_SUITE_P(Models, SavedSessionTest,
                         testing::Combine(testing::Values(BackendKind::kReference,
                                                          BackendKind::kCpu),
                                          testing::Values("llama-gqa", "qwen3next", "qwen35",
                                                          "kimi-linear", "deepseek4")),
                         model_name);

/// Logits before each of some greedy tokens.
std::vector<std::vector<float>> go_on(Session& session, int tokens) {
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < tokens; ++i) {
    rows.emplace_back(session.logits().begin(), session.logits().end());
    session.decode(best(session.logits()));
  }
  return rows;
}

TEST_P(SavedSessionTest, GoesOnWithTheSameBits) {
  LEMMA_TEST_DATA_OR_SKIP(path, model());
  const auto engine = Engine::open(path, options());
  const Ids prompt = numbers(69);
  Session straight = engine->session();
  straight.sync(prompt);
  const auto expected = go_on(straight, 9);

  Session session = engine->session(), other = engine->session();
  other.sync(numbers(40, 77));
  session.sync(prompt);
  auto rows = go_on(session, 3);
  const SavedSession saved = session.save();
  EXPECT_EQ(saved.length(), 72u);
  EXPECT_TRUE(std::ranges::equal(saved.tokens(), session.tokens()));
  for (Session* target : {&session, &other, &session}) {
    session.append(numbers(10, 3));
    target->restore(saved);
    auto whole = rows;
    for (auto& row : go_on(*target, 6)) whole.push_back(std::move(row));
    EXPECT_EQ(whole, expected);
  }
  EXPECT_EQ(saved.length(), 72u);
}

TEST_P(SavedSessionTest, ComputesTheSameAfterGoingBackToItsPrompt) {
  LEMMA_TEST_DATA_OR_SKIP(path, model());
  const auto engine = Engine::open(path, options());
  Session session = engine->session();
  session.sync(numbers(40));
  Ids longer = numbers(70);
  session.sync(longer);
  const auto first = go_on(session, 3);
  const RewindResult cut = session.rewind(70);
  EXPECT_EQ(cut.length, 70u);
  EXPECT_EQ(cut.reason, "");
  EXPECT_TRUE(session.logits().empty());
  EXPECT_EQ(session.sync(longer).reused, std::get<1>(GetParam()) == "llama-gqa"sv ? 69u : 70u);
  EXPECT_EQ(go_on(session, 3), first);

  longer[50] = 7;  // a branch behind the end of the first prompt
  const SyncResult branch = session.sync(longer);
  EXPECT_EQ(branch.reused, std::get<1>(GetParam()) == "llama-gqa"sv ? 50u : 40u);
  EXPECT_EQ(branch.reason.empty(), branch.reused == 50);
  Session cold = engine->session();
  cold.sync(longer);
  EXPECT_TRUE(std::ranges::equal(session.logits(), cold.logits()));
}

class SaveTest : public AnyBackendTest {};

INSTANTIATE_TEST_SUITE_P(Backends, SaveTest,
                         testing::Values(BackendKind::kReference, BackendKind::kCpu), backend_name);

TEST_P(SaveTest, SavesASessionThatHoldsNothing) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const auto engine = Engine::open(path, options());
  Session session = engine->session();
  const SavedSession nothing = session.save();
  EXPECT_EQ(nothing.length(), 0u);
  EXPECT_TRUE(nothing.tokens().empty());
  session.sync(numbers(10));
  session.restore(nothing);
  EXPECT_EQ(session.length(), 0u);
  EXPECT_TRUE(session.logits().empty());
  EXPECT_EQ(session.sync(numbers(10)).computed, 10u);
}

TEST_P(SaveTest, GivesTheStateOfASavedSessionBackAtItsEnd) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const auto engine = Engine::open(path, options());
  {
    std::optional<SavedSession> saved;
    {
      Session session = engine->session();
      session.sync(numbers(10));
      saved = session.save();
    }
    Generation generation = engine->submit(request(numbers(10), 1));
    collect(generation);
    EXPECT_GT(engine->memory().state_used, 0u);
    Session session = engine->session();
    session.restore(*saved);
    EXPECT_EQ(session.length(), 10u);
  }
  Generation generation = engine->submit(request(numbers(10), 1));
  collect(generation);
  EXPECT_EQ(engine->memory().state_used, 0u);
}

TEST_P(SaveTest, RestoresNoSessionOfAnotherEngine) {
  LEMMA_TEST_DATA_OR_SKIP(path, kGolden);
  const auto engine = Engine::open(path, options()), other = Engine::open(path, options());
  Session session = engine->session(), stranger = other->session();
  session.sync(numbers(10));
  stranger.sync(numbers(5));
  error_of(ErrorKind::kUsage, [&] { stranger.restore(session.save()); });
  EXPECT_EQ(stranger.length(), 5u);
}

}  // namespace
}  // namespace lemma
