// SPDX-License-Identifier: Apache-2.0
#include "runtime/expert_prefetch.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "runtime/evaluation.hpp"
#include "test_data.hpp"

namespace lemma::runtime {
namespace {

constexpr const char* kModel = "goldens/gpt-oss/model.gguf";  // three layers of 3 of 8 experts
const std::vector<std::int32_t> kTokens = {1,   403, 407, 261, 378, 432, 383, 286, 261, 376,
                                           403, 407, 261, 378, 432, 383, 286, 261, 376, 403};

/// Logits of all tokens: eight as a prompt, the others one by one.
std::vector<float> logits(LoadedModel& model, std::vector<backend::Observer*> observers) {
  StateSpace space(model, {.sequences = 1, .max_rows = 8, .observers = observers});
  state::Sequence sequence(space.pool());
  std::vector<float> all;
  Chunking chunking;
  for (std::uint32_t cut = 8; cut < kTokens.size(); ++cut) chunking.cuts.push_back(cut);
  evaluate(model, space, sequence, kTokens, chunking,
           [&](std::uint32_t, std::span<const float> row) {
             all.insert(all.end(), row.begin(), row.end());
           });
  return all;
}

TEST(ExpertPrefetch, ChangesNoResultWhateverItGuesses) {
  LEMMA_TEST_DATA_OR_SKIP(path, kModel);
  const auto model = LoadedModel::open(path, {.threads = 1, .repack = false});
  const std::vector<float> plain = logits(*model, {});
  std::mt19937 random(3);
  std::size_t guesses = 0;
  const auto hostile = [&](std::uint32_t) {
    ++guesses;
    std::vector<std::uint32_t> named(random() % 20);
    for (std::uint32_t& expert : named)  // wrong ones, doubled ones, some that do not exist
      expert = random() % 4 == 0 ? std::uint32_t(random()) : std::uint32_t(random() % 8);
    return named;
  };
  std::size_t bytes = 0;
  const auto fetch = [&](std::span<const std::byte> some) {
    volatile std::byte first = some.front(), last = some.back();  // they must be there
    (void)first;
    (void)last;
    bytes += some.size();
  };
  ExpertPrefetch adversary(*model, 8, hostile, fetch), own(*model, 3);
  EXPECT_EQ(logits(*model, {&adversary}), plain);
  EXPECT_EQ(logits(*model, {&own}), plain);
  EXPECT_EQ(guesses, 12U * 3);
  EXPECT_GT(bytes, 0U);
}

TEST(ExpertPrefetch, FetchesTheExpertsThatItNamesOfTheLayerThatComesNext) {
  LEMMA_TEST_DATA_OR_SKIP(path, kModel);
  const auto model = LoadedModel::open(path, {.threads = 1, .repack = false});
  std::vector<std::uint32_t> asked;
  std::vector<std::size_t> sizes;
  ExpertPrefetch prefetch(
      *model, 2,
      [&](std::uint32_t layer) {
        asked.push_back(layer);
        return std::vector<std::uint32_t>{5};
      },
      [&](std::span<const std::byte> some) { sizes.push_back(some.size()); });
  logits(*model, {&prefetch});
  ASSERT_EQ(asked.size(), 36U);
  EXPECT_EQ(std::vector<std::uint32_t>(asked.begin(), asked.begin() + 4),
            (std::vector<std::uint32_t>{1, 2, 0, 1}));
  EXPECT_EQ(sizes.size(), 36U * 3) << "gate, up and down";
}

TEST(ExpertPrefetch, PassesOverExpertsThatArePacked) {
  LEMMA_TEST_DATA_OR_SKIP(path, kModel);
  const auto model = LoadedModel::open(path, {.threads = 1});
  std::size_t fetched = 0;
  ExpertPrefetch prefetch(
      *model, 2, [](std::uint32_t) { return std::vector<std::uint32_t>{5}; },
      [&](std::span<const std::byte>) { ++fetched; });
  logits(*model, {&prefetch});
  EXPECT_EQ(fetched, 0U);
}

TEST(ExpertPrefetch, NamesMoreThanChanceWouldOnARepeatedText) {
  LEMMA_TEST_DATA_OR_SKIP(path, kModel);
  const auto model = LoadedModel::open(path, {.threads = 1});
  ExpertPrefetch prefetch(*model, 3, {}, [](std::span<const std::byte>) {});
  logits(*model, {&prefetch});
  const algorithm::PredictorStatistics& statistics = prefetch.statistics();
  EXPECT_GT(statistics.evaluated, 30U);
  EXPECT_GT(statistics.recall(), 3.0 / 8);
  EXPECT_EQ(prefetch.chosen(), statistics.wanted);
  EXPECT_EQ(prefetch.foreseen(), statistics.hits);
}

TEST(ExpertPrefetch, JudgesGuessesAlsoWhereItActsOnlyOnRightOnes) {
  LEMMA_TEST_DATA_OR_SKIP(path, kModel);
  const auto model = LoadedModel::open(path, {.threads = 1, .repack = false});
  const std::vector<float> plain = logits(*model, {});
  ExpertPrefetch prefetch(*model, 3, ExpertPrefetch::Eagerness::kWhenRight);
  EXPECT_EQ(logits(*model, {&prefetch}), plain);
  EXPECT_GT(prefetch.statistics().evaluated, 30U);
}

TEST(ExpertPrefetch, RefusesAModelWithoutExperts) {
  LEMMA_TEST_DATA_OR_SKIP(path, "models/stories260K-f32.gguf");
  const auto model = LoadedModel::open(path, {.threads = 1});
  EXPECT_THROW(ExpertPrefetch(*model, 2), Error);
}

}  // namespace
}  // namespace lemma::runtime
