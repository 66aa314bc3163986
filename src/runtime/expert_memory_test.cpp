// SPDX-License-Identifier: Apache-2.0
// Engines whose weights are packed, stay in the file, or do both: the same answers.
#include "runtime/expert_memory.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lemma/engine.hpp"
#include "test_data.hpp"

namespace lemma::runtime {
namespace {

constexpr const char* kExperts = "goldens/gpt-oss/model.gguf";  // three layers of 3 of 8 experts

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<double> probabilities;
  MemoryUse memory;
  friend bool operator==(const Answer& a, const Answer& b) {
    return a.tokens == b.tokens && a.probabilities == b.probabilities;
  }
};

Answer answer(const std::filesystem::path& path, EngineOptions options) {
  options.threads = 2;
  options.max_sequences = 1;
  const auto engine = Engine::open(path, std::move(options));
  std::vector<TokenId> prompt;
  for (TokenId id = 0; id < 60; ++id) prompt.push_back(id * 37 % 300 + 5);
  Sampling greedy;
  greedy.temperature = 0.f;
  Generation generation = engine->submit({.prompt = prompt,
                                          .sampling = greedy,
                                          .max_tokens = 12,
                                          .stop_at_end = false,
                                          .log_probabilities = 0});
  Answer result;
  while (const auto event = generation.next()) {
    if (event->token) {
      result.tokens.push_back(*event->token);
      result.probabilities.push_back(event->log_probability.value());
    }
    result.memory = engine->memory();
  }
  return result;
}

TEST(WeightsInTheFile, GiveTheSameAnswers) {
  for (const char* name :
       {kExperts, "goldens/llama-gqa/model.gguf", "goldens/deepseek2-v3-mla/model.gguf"}) {
    LEMMA_TEST_DATA_OR_SKIP(path, name);
    const Answer packed = answer(path, {}), mapped = answer(path, {.repack = false});
    EXPECT_EQ(packed.tokens.size(), 12u);
    EXPECT_TRUE(mapped == packed) << name;
    EXPECT_LT(mapped.memory.weights, packed.memory.weights / 4) << name;
    EXPECT_EQ(packed.memory.experts_in_file, 0u);
  }
}

TEST(WeightsInTheFile, AreExpertsThatDoNotFit) {
  LEMMA_TEST_DATA_OR_SKIP(path, kExperts);
  const Answer packed = answer(path, {}), none = answer(path, {.memory = 1});
  EXPECT_TRUE(none == packed);
  EXPECT_GT(none.memory.experts_in_file, 0u);
  EXPECT_LT(none.memory.weights, packed.memory.weights);
  EXPECT_GT(none.memory.weights, 0u) << "what every step needs is packed all the same";
  // Eleven decoded tokens, the first of which nothing foretold, in three layers that choose three.
  EXPECT_GE(none.memory.experts_chosen, 9u * 9u);
  EXPECT_LE(none.memory.experts_foreseen, none.memory.experts_chosen);
  EXPECT_GT(none.memory.experts_foreseen, 0u);
}

TEST(WeightsInTheFile, AreTheLastLayersFirst) {
  LEMMA_TEST_DATA_OR_SKIP(path, kExperts);
  const auto model = LoadedModel::open(path, {.threads = 1, .memory = 1});
  const std::uint64_t all = model->experts_in_file();
  std::uint64_t before = all;
  std::size_t steps = 0;
  for (std::uint64_t budget = 1; before > 0; budget += all / 16) {
    const ExpertPlacement some =
        place_experts(model->plan(), model->checkpoint(), model->context(), {.memory = budget});
    EXPECT_LE(some.bytes, before);
    steps += some.bytes < before ? 1u : 0u;
    before = some.bytes;
    if (some.bytes == 0 || some.bytes == all) continue;
    EXPECT_EQ(some.in_file.back().rfind("blk.2.", 0), 0u) << some.in_file.back();
  }
  EXPECT_GE(steps, 3u);
}

TEST(WeightsInTheFile, AreNotReadAheadWhereThatIsSwitchedOff) {
  LEMMA_TEST_DATA_OR_SKIP(path, kExperts);
  const Answer quiet = answer(path, {.memory = 1, .prefetch_experts = 0});
  EXPECT_EQ(quiet.memory.experts_chosen, 0u);
  EXPECT_TRUE(quiet == answer(path, {}));
}

}  // namespace
}  // namespace lemma::runtime
