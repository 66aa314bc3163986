// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace lemma::runtime {
namespace {

const std::vector<TokenId> kTokens = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19};

Task prompt(std::size_t tokens) {
  return {TaskKind::kNewPrefill, std::span(kTokens).first(tokens)};
}
Task decode() {
  return {TaskKind::kDecodeRound, std::span(kTokens).first(1)};
}

TEST(ShareRows, ServesEveryDecodeRoundBeforeAnyPrompt) {
  const std::vector<Task> tasks = {prompt(10), decode(), prompt(3), decode()};
  EXPECT_EQ(share_rows(tasks, 8), (std::vector<Share>{{1, 1}, {3, 1}, {0, 6}}));
}

TEST(ShareRows, ServesPromptsInOrderOfArrival) {
  const std::vector<Task> tasks = {prompt(3), prompt(4), prompt(5)};
  EXPECT_EQ(share_rows(tasks, 8), (std::vector<Share>{{0, 3}, {1, 4}, {2, 1}}));
}

TEST(ShareRows, FillsTheStepAndNeverExceedsIt) {
  for (std::uint32_t max_rows = 1; max_rows < 20; ++max_rows) {
    std::uint32_t total = 0;
    const std::vector<Task> tasks = {decode(), prompt(10), prompt(2)};
    for (const Share& share : share_rows(tasks, max_rows)) {
      EXPECT_GT(share.rows, 0u);
      total += share.rows;
    }
    EXPECT_EQ(total, std::min(max_rows, 13u));
  }
}

TEST(ShareRows, CutsNoPromptWhereRowsLookAhead) {
  const std::vector<Task> tasks = {prompt(5), prompt(4), prompt(3), prompt(8)};
  EXPECT_EQ(share_rows(tasks, 8, true), (std::vector<Share>{{0, 5}, {2, 3}}));
  EXPECT_EQ(share_rows(std::span(tasks).last(1), 8, true), (std::vector<Share>{{0, 8}}));
}

}  // namespace
}  // namespace lemma::runtime
