// SPDX-License-Identifier: Apache-2.0
#include "state/sequence.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "lemma/error.hpp"
#include "state/test_world.hpp"

namespace lemma::state {
namespace {

using test::World;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::int32_t> tokens(std::size_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

void advance(Sequence& sequence, std::size_t count, TokenClass kind = TokenClass::kEntered) {
  sequence.reserve(count);
  sequence.take_copies();
  sequence.commit(tokens(count, static_cast<std::int32_t>(sequence.length())), kind);
}

/// The message of the kOutOfMemory that `reserve` throws.
std::string shortage(Sequence& sequence, std::size_t count) {
  try {
    sequence.reserve(count);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kOutOfMemory) return error.what();
  }
  return {};
}

TEST(Sequence, MovesItsLengthOnlyWhenAStepCommits) {
  World world({0}, 4, 0, 8);
  Sequence sequence(world.pool);
  sequence.reserve(6);
  EXPECT_EQ(sequence.length(), 0u);
  EXPECT_EQ(sequence.reserved(), 6u);
  EXPECT_THAT(sequence.pages(0), ElementsAre(0, 1));
  sequence.commit(tokens(6), TokenClass::kEntered);
  EXPECT_EQ(sequence.length(), 6u);
  EXPECT_EQ(sequence.reserved(), 0u);
}

TEST(Sequence, KeepsTokensWithTheirClasses) {
  World world({0}, 4, 0, 8);
  Sequence sequence(world.pool);
  advance(sequence, 2, TokenClass::kEntered);
  advance(sequence, 1, TokenClass::kGenerated);
  EXPECT_THAT(sequence.tokens(), ElementsAre(0, 1, 2));
  EXPECT_THAT(sequence.classes(),
              ElementsAre(TokenClass::kEntered, TokenClass::kEntered, TokenClass::kGenerated));
}

TEST(Sequence, TakesANewPageOnlyWhenTheLastIsFull) {
  World world({0}, 4, 0, 8);
  Sequence sequence(world.pool);
  for (std::size_t n = 1; n <= 9; ++n) {
    advance(sequence, 1);
    EXPECT_EQ(world.pool.used(0), (n + 3) / 4);
  }
}

TEST(Sequence, SpansManyPagesInOneStep) {
  World world({0}, 2, 0, 8);
  Sequence sequence(world.pool);
  advance(sequence, 3);
  advance(sequence, 9);
  EXPECT_THAT(sequence.pages(0), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Sequence, CountsAnEarlierReservationIn) {
  World world({0}, 1, 0, 8);
  Sequence sequence(world.pool);
  sequence.reserve(3);
  sequence.reserve(2);
  EXPECT_EQ(sequence.reserved(), 3u);
  sequence.reserve(4);
  EXPECT_EQ(world.pool.used(0), 4u);
}

TEST(Sequence, ReservesInAllGroupsOrInNone) {
  World world({0, 2}, 4, 0, 4);
  Sequence other(world.pool);
  Sequence sequence(world.pool);
  advance(other, 16);  // all of group 0; the window's group keeps one page
  ASSERT_EQ(world.pool.free(0), 0u);
  ASSERT_EQ(world.pool.free(1), 3u);
  EXPECT_THAT(shortage(sequence, 8), HasSubstr("full attention"));
  EXPECT_EQ(world.pool.free(1), 3u);
  EXPECT_THAT(sequence.pages(1), IsEmpty());
  EXPECT_EQ(sequence.reserved(), 0u);
}

TEST(Sequence, LeavesTheFirstGroupAloneWhenALaterOneIsShort) {
  World world({0, 8}, 4, 0, 0);
  PagePool pool(world.layout, std::vector<std::size_t>{8, 2});
  Sequence sequence(pool);
  advance(sequence, 5);
  EXPECT_THAT(shortage(sequence, 8), HasSubstr("a window of 8"));
  EXPECT_EQ(pool.used(0), 2u);
  EXPECT_EQ(pool.used(1), 2u);
  EXPECT_EQ(sequence.length(), 5u);
  advance(sequence, 3);  // what fits still goes
}

TEST(Sequence, NamesNeededAndFreePages) {
  World world({0}, 4, 0, 3);
  Sequence sequence(world.pool);
  advance(sequence, 6);
  EXPECT_EQ(shortage(sequence, 10),
            "state for 10 more positions: full attention needs pages of 4 positions: 2 needed, "
            "1 of 3 free");
  EXPECT_THAT(shortage(sequence, ~std::size_t{0} - 6), HasSubstr("1 of 3 free"));
}

TEST(Sequence, AbandonsOnlyWhatIsNotCommitted) {
  World world({0, 8}, 4, 4, 8);
  Sequence sequence(world.pool);
  advance(sequence, 6);
  const std::vector<PageId> before(sequence.pages(0).begin(), sequence.pages(0).end());
  sequence.reserve(7);
  EXPECT_EQ(world.pool.used(0), 4u);
  sequence.abandon();
  EXPECT_THAT(sequence.pages(0), testing::ElementsAreArray(before));
  EXPECT_EQ(world.pool.used(0), 2u);
  EXPECT_EQ(world.pool.used(1), 2u);
  EXPECT_EQ(sequence.length(), 6u);
  EXPECT_EQ(sequence.reserved(), 0u);
}

TEST(Sequence, KeepsTheRestReservedAfterAPartialCommit) {
  World world({0}, 1, 0, 8);
  Sequence sequence(world.pool);
  sequence.reserve(5);
  sequence.commit(tokens(2), TokenClass::kGenerated);
  EXPECT_EQ(sequence.reserved(), 3u);
  EXPECT_EQ(world.pool.used(0), 5u);
  sequence.abandon();
  EXPECT_EQ(world.pool.used(0), 2u);
}

TEST(Sequence, GivesEverythingBackAtItsEnd) {
  World world({0, 4}, 2, 2, 16);
  {
    Sequence sequence(world.pool);
    advance(sequence, 13);
    sequence.reserve(3);
    EXPECT_GT(world.pool.used_bytes(), 0u);
  }
  EXPECT_EQ(world.pool.used_bytes(), 0u);
}

TEST(Sequence, TakesItsPagesAlongWhenMoved) {
  World world({0, 4}, 2, 2, 16);
  std::optional<Sequence> first(std::in_place, world.pool);
  advance(*first, 13);
  first->reserve(2);
  const std::size_t used = world.pool.used_bytes();
  Sequence second(std::move(*first));
  first.reset();
  EXPECT_EQ(world.pool.used_bytes(), used);
  EXPECT_EQ(second.length(), 13u);
  EXPECT_EQ(second.reserved(), 2u);
  second.commit(tokens(2, 13), TokenClass::kEntered);
  EXPECT_THAT(second.tokens(), testing::ElementsAreArray(tokens(15)));
  static_assert(std::is_nothrow_move_constructible_v<Sequence>);
  static_assert(!std::is_copy_constructible_v<Sequence>);
}

TEST(Sequence, NeedsNoPagesWithoutSlots) {
  World world({}, 4, 0, 0);
  Sequence sequence(world.pool);
  advance(sequence, 100);
  EXPECT_EQ(sequence.length(), 100u);
  EXPECT_EQ(sequence.reachable(7).length, 7u);
}

TEST(Sequence, GivesAWindowsPageBackOnceItLiesWindowAndSlackBehind) {
  World world({6}, 4, 2, 16);
  Sequence sequence(world.pool);
  advance(sequence, 11);  // keeps [3, 11)
  EXPECT_THAT(sequence.pages(0), ElementsAre(0, 1, 2));
  advance(sequence, 1);  // keeps [4, 12)
  EXPECT_THAT(sequence.pages(0), ElementsAre(kNoPage, 1, 2));
  advance(sequence, 1);
  EXPECT_THAT(sequence.pages(0), ElementsAre(kNoPage, 1, 2, 0));
}

TEST(Sequence, KeepsAllRowsOfAChunkUntilItCommits) {
  World world({3}, 1, 0, 32);
  Sequence sequence(world.pool);
  advance(sequence, 5);  // keeps [2, 5)
  sequence.reserve(10);
  // The first row of the chunk sees positions 3 to 5, its last one 12 to 14.
  for (std::size_t position = 2; position < 15; ++position) {
    EXPECT_NE(sequence.pages(0)[position], kNoPage);
  }
  sequence.commit(tokens(10, 5), TokenClass::kEntered);
  EXPECT_EQ(world.pool.used(0), 3u);
  EXPECT_NE(sequence.pages(0)[12], kNoPage);
}

struct Retention {
  std::uint32_t window, page_size, slack;
  std::size_t step;
};

class WindowRetention : public testing::TestWithParam<Retention> {};

TEST_P(WindowRetention, HoldsNoMoreThanWindowSlackAndOnePageAfterTenWindows) {
  const auto [window, page_size, slack, step] = GetParam();
  World world({window, 0}, page_size, slack, 11 * std::size_t{window} / page_size + 2);
  Sequence sequence(world.pool);
  const std::size_t per_position = world.layout.groups()[0].page_bytes / page_size;
  // Pages are whole, so window + slack counts as whole pages.
  const std::size_t kept = (window + slack + page_size - 1) / page_size * page_size;
  const std::size_t length = 10 * std::size_t{window};
  while (sequence.length() < length) {
    const std::size_t count = std::min(step, length - sequence.length());
    sequence.reserve(count);
    const std::size_t during = world.pool.used(0);
    // A step of one row stays within the bound even while it runs; a chunk adds its own rows.
    const std::size_t room = (kept + page_size + count - 1 + page_size - 1) / page_size;
    EXPECT_LE(during, room);
    EXPECT_LE(during, world.layout.pages_for(0, length, step));
    sequence.commit(tokens(count), TokenClass::kEntered);
    EXPECT_LE(world.pool.used(0) * page_size * per_position, (kept + page_size) * per_position);
  }
  EXPECT_EQ(world.pool.used(1), (length + page_size - 1) / page_size);
}

INSTANTIATE_TEST_SUITE_P(DecodeAndChunks, WindowRetention,
                         testing::Values(Retention{32, 8, 8, 1}, Retention{32, 8, 8, 5},
                                         Retention{32, 8, 8, 8}, Retention{32, 8, 8, 100},
                                         Retention{32, 8, 0, 1}, Retention{13, 8, 3, 1},
                                         Retention{13, 8, 3, 7}, Retention{5, 16, 2, 3},
                                         Retention{1, 1, 0, 1}, Retention{512, 128, 128, 1},
                                         Retention{512, 128, 128, 300}));

TEST(Sequence, NeedsExactlyThePagesThatTheLayoutForetells) {
  for (const std::size_t step : {std::size_t{1}, std::size_t{3}, std::size_t{4}, std::size_t{9}}) {
    World world({6}, 4, 3, 64);
    std::size_t most = 0;
    for (std::size_t shift = 0; shift < 8; ++shift) {
      Sequence sequence(world.pool);
      advance(sequence, 1);
      for (std::size_t i = 0; i < 20 + shift; ++i) advance(sequence, 1);
      sequence.reserve(step);
      most = std::max(most, world.pool.used(0));
    }
    EXPECT_EQ(most, world.layout.pages_for(0, 100, step)) << "step " << step;
  }
}

TEST(Sequence, StaysSmallInALongChat) {
  World world({16}, 4, 4, 6);
  Sequence sequence(world.pool);
  for (int i = 0; i < 5000; ++i) advance(sequence, 1, TokenClass::kGenerated);
  EXPECT_EQ(sequence.length(), 5000u);
  EXPECT_LE(world.pool.used(0), 6u);
  EXPECT_EQ(sequence.pages(0)[0], kNoPage);
  EXPECT_NE(sequence.pages(0)[1249], kNoPage);
}

}  // namespace
}  // namespace lemma::state
