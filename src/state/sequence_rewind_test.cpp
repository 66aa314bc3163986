// SPDX-License-Identifier: Apache-2.0
// Cutting a sequence back, forking it, and never writing a page that somebody else holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lemma/error.hpp"
#include "state/sequence.hpp"
#include "state/test_world.hpp"

namespace lemma::state {
namespace {

using test::World;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void advance(Sequence& sequence, std::size_t count) {
  sequence.reserve(count);
  sequence.take_copies();
  sequence.commit(std::vector<std::int32_t>(count, 7), TokenClass::kEntered);
}

TEST(Rewind, RefusesWhereTheNextQueryWouldMissItsKeys) {
  World world({3}, 1, 0, 8);
  Sequence sequence(world.pool);
  advance(sequence, 5);
  ASSERT_THAT(sequence.pages(0).first(2), ElementsAre(kNoPage, kNoPage));  // retained [2, 5)
  EXPECT_EQ(sequence.reachable(5).length, 5u);
  EXPECT_EQ(sequence.reachable(4).length, 4u);  // the query at 4 needs 2 and 3
  EXPECT_THAT(sequence.reachable(4).reason, IsEmpty());
  const RewindPoint point = sequence.reachable(3);  // the query at 3 needs 1
  EXPECT_EQ(point.length, 0u);
  EXPECT_EQ(point.reason,
            "the query at 3 needs keys from 1 on, but a window of 3 holds them from 2 on");
}

TEST(Rewind, ReachesTheEmptySequenceAlways) {
  World world({3, 0}, 1, 0, 64);
  Sequence sequence(world.pool);
  advance(sequence, 50);
  EXPECT_EQ(sequence.reachable(0).length, 0u);
  EXPECT_THAT(sequence.reachable(0).reason, IsEmpty());
  sequence.rewind(0);
  EXPECT_EQ(world.pool.used_bytes(), 0u);
  advance(sequence, 5);
  EXPECT_EQ(sequence.reachable(4).length, 4u);
}

TEST(Rewind, ReachesAllLengthsUnderFullAttention) {
  World world({0}, 4, 0, 8);
  Sequence sequence(world.pool);
  advance(sequence, 20);
  for (std::size_t n = 0; n <= 20; ++n) EXPECT_EQ(sequence.reachable(n).length, n);
}

TEST(Rewind, ReachesAllLengthsWhileTheWindowHasNotPassed) {
  World world({8}, 4, 4, 8);
  Sequence sequence(world.pool);
  advance(sequence, 15);
  for (std::size_t n = 0; n <= 15; ++n) EXPECT_EQ(sequence.reachable(n).length, n);
}

TEST(Rewind, ReachesAsFarBackAsTheSlack) {
  World world({8}, 4, 6, 64);
  Sequence sequence(world.pool);
  for (std::size_t n = 1; n <= 100; ++n) {
    advance(sequence, 1);
    const std::size_t back = n > 6 ? n - 6 : 0;
    EXPECT_EQ(sequence.reachable(back).length, back);
  }
  EXPECT_EQ(sequence.reachable(50).length, 0u);
}

TEST(Rewind, SaysThatAWishBeyondTheEndIsNotMet) {
  World world({0}, 4, 0, 8);
  Sequence sequence(world.pool);
  advance(sequence, 6);
  EXPECT_EQ(sequence.reachable(9).length, 6u);
  EXPECT_EQ(sequence.reachable(9).reason, "only 6 positions are held");
}

TEST(Rewind, AsksEveryWindow) {
  World world({0, 16, 3}, 1, 0, 64);
  Sequence sequence(world.pool);
  advance(sequence, 40);
  EXPECT_EQ(sequence.reachable(39).length, 39u);
  EXPECT_EQ(sequence.reachable(38).length, 0u);
  EXPECT_THAT(sequence.reachable(38).reason, HasSubstr("a window of 16"));
}

TEST(Rewind, GivesPagesBackThatReserveUsesAgain) {
  World world({0}, 4, 0, 5);
  Sequence sequence(world.pool);
  advance(sequence, 20);
  sequence.rewind(6);
  EXPECT_EQ(sequence.length(), 6u);
  EXPECT_EQ(sequence.tokens().size(), 6u);
  EXPECT_EQ(sequence.classes().size(), 6u);
  EXPECT_EQ(world.pool.used(0), 2u);
  sequence.reserve(2);  // the rest of the partial page
  EXPECT_EQ(world.pool.used(0), 2u);
  sequence.reserve(14);
  EXPECT_THAT(sequence.pages(0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(sequence.take_copies(), IsEmpty());
}

TEST(Rewind, EndsAReservation) {
  World world({0}, 4, 0, 8);
  Sequence sequence(world.pool);
  advance(sequence, 6);
  sequence.reserve(20);
  sequence.rewind(6);
  EXPECT_EQ(sequence.reserved(), 0u);
  EXPECT_EQ(world.pool.used(0), 2u);
}

TEST(Rewind, KeepsAWindowGoingAfterwards) {
  World world({8}, 4, 4, 16);
  Sequence sequence(world.pool);
  advance(sequence, 40);
  sequence.rewind(36);
  EXPECT_EQ(sequence.reachable(35).length, 35u);  // [28, 36) is held, and the query at 35 needs 28
  EXPECT_EQ(sequence.reachable(34).length, 0u);
  advance(sequence, 20);
  EXPECT_LE(world.pool.used(0), 4u);
  EXPECT_EQ(sequence.length(), 56u);
}

TEST(RewindDeathTest, StopsAtALengthThatIsNotReachable) {
  World world({3}, 1, 0, 8);
  Sequence sequence(world.pool);
  advance(sequence, 5);
  EXPECT_DEATH(sequence.rewind(3), "can_rewind");
  EXPECT_DEATH(sequence.rewind(6), "length");
}

TEST(SequenceDeathTest, StopsAtMoreTokensThanReserved) {
  World world({0}, 4, 0, 8);
  Sequence sequence(world.pool);
  sequence.reserve(2);
  const std::vector<std::int32_t> three(3, 0);
  EXPECT_DEATH(sequence.commit(three, TokenClass::kEntered), "reserved");
}

TEST(Fork, SharesFullPagesAndTakesAPartialPageOfItsOwn) {
  World world({0}, 4, 0, 8);
  Sequence parent(world.pool);
  advance(parent, 10);
  Sequence child = parent.fork(10);
  EXPECT_EQ(child.length(), 10u);
  EXPECT_THAT(child.pages(0), ElementsAre(0, 1, 3));
  EXPECT_EQ(world.pool.references(0, 0), 2u);
  EXPECT_EQ(world.pool.used(0), 4u);
  EXPECT_THAT(child.take_copies(), ElementsAre(PageCopy{0, 2, 3, 2}));
  EXPECT_THAT(child.take_copies(), IsEmpty());
  EXPECT_EQ(world.pool.references(0, 2), 1u);
  advance(parent, 1);
  advance(child, 1);
  EXPECT_EQ(world.pool.used(0), 4u);
}

TEST(Fork, CopiesNothingAtAPageBoundary) {
  World world({0}, 4, 0, 2);
  Sequence parent(world.pool);
  advance(parent, 8);
  Sequence child = parent.fork(8);
  EXPECT_THAT(child.take_copies(), IsEmpty());
  EXPECT_EQ(world.pool.used(0), 2u);
}

TEST(Fork, CutsInsideTheHistory) {
  World world({0}, 4, 0, 8);
  Sequence parent(world.pool);
  advance(parent, 12);
  Sequence child = parent.fork(5);
  EXPECT_EQ(child.length(), 5u);
  EXPECT_EQ(child.tokens().size(), 5u);
  EXPECT_EQ(child.classes().size(), 5u);
  EXPECT_THAT(child.pages(0), ElementsAre(0, 3));
  EXPECT_THAT(child.take_copies(), ElementsAre(PageCopy{0, 1, 3, 1}));
}

TEST(Fork, LeavesOutReservedAndReleasedPages) {
  World world({4}, 2, 2, 16);
  Sequence parent(world.pool);
  advance(parent, 13);
  parent.reserve(6);
  Sequence child = parent.fork(13);
  EXPECT_EQ(child.reserved(), 0u);
  ASSERT_EQ(child.pages(0).size(), 7u);
  EXPECT_EQ(child.pages(0)[2], kNoPage);
  EXPECT_EQ(child.pages(0)[3], parent.pages(0)[3]);
  EXPECT_EQ(child.reachable(11).length, parent.reachable(11).length);
  EXPECT_EQ(child.reachable(5).length, 0u);
}

TEST(Fork, OutlivesItsParent) {
  World world({0, 4}, 2, 2, 16);
  std::optional<Sequence> parent(std::in_place, world.pool);
  advance(*parent, 9);
  Sequence child = parent->fork(9);
  parent.reset();  // before the copy is made: its source must not be handed out again
  const PageId source = 4;
  EXPECT_EQ(world.pool.references(0, source), 1u);
  EXPECT_EQ(child.take_copies().at(0).from, source);
  EXPECT_EQ(world.pool.references(0, source), 0u);
  advance(child, 4);
  child.rewind(0);
  EXPECT_EQ(world.pool.used_bytes(), 0u);
}

TEST(Fork, GivesBackTheSourceOfACopyThatIsNeverMade) {
  World world({0}, 4, 0, 8);
  {
    Sequence parent(world.pool);
    advance(parent, 6);
    Sequence child = parent.fork(6);
    child.rewind(4);
    EXPECT_THAT(child.take_copies(), IsEmpty());
    EXPECT_EQ(world.pool.references(0, 1), 1u);
    Sequence other = parent.fork(6);
  }
  EXPECT_EQ(world.pool.used(0), 0u);
}

TEST(Fork, ThrowsWithoutAPageForThePartialOne) {
  World world({0, 64}, 4, 0, 0);
  PagePool pool(world.layout, std::vector<std::size_t>{3, 2});
  Sequence parent(pool);
  advance(parent, 6);
  try {
    Sequence child = parent.fork(6);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    EXPECT_THAT(error.what(), HasSubstr("1 needed, 0 of 2 free"));
  }
  EXPECT_EQ(pool.references(0, 0), 1u);
  EXPECT_EQ(pool.used(0), 2u);
}

TEST(ForkDeathTest, StopsAtACommitBeforeItsCopiesAreMade) {
  World world({0}, 4, 0, 8);
  Sequence parent(world.pool);
  advance(parent, 6);
  Sequence child = parent.fork(6);
  child.reserve(1);
  const std::vector<std::int32_t> one(1, 0);
  EXPECT_DEATH(child.commit(one, TokenClass::kEntered), "due_");
}

TEST(SharedPage, IsReplacedBeforeItIsWritten) {
  World world({0}, 4, 0, 8);
  Sequence parent(world.pool);
  advance(parent, 8);
  Sequence child = parent.fork(8);
  parent.rewind(7);  // into a page that the child reads
  EXPECT_THAT(parent.pages(0), ElementsAre(0, 1));
  parent.reserve(1);
  EXPECT_THAT(parent.pages(0), ElementsAre(0, 2));
  EXPECT_THAT(parent.take_copies(), ElementsAre(PageCopy{0, 1, 2, 3}));
  EXPECT_THAT(child.pages(0), ElementsAre(0, 1));
  EXPECT_EQ(world.pool.references(0, 1), 1u);
  child.rewind(6);  // now held by the child alone
  child.reserve(1);
  EXPECT_THAT(child.take_copies(), IsEmpty());
}

TEST(SharedPage, CountsAmongTheNeededPages) {
  World world({0}, 4, 0, 3);
  Sequence parent(world.pool);
  advance(parent, 8);
  Sequence child = parent.fork(8);
  parent.rewind(7);
  try {
    parent.reserve(2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 needed, 1 of 3 free"));
  }
  EXPECT_THAT(parent.pages(0), ElementsAre(0, 1));
  EXPECT_EQ(world.pool.used(0), 2u);
}

TEST(SharedPage, StaysReplacedWhenTheStepIsAbandoned) {
  World world({0}, 4, 0, 8);
  Sequence parent(world.pool);
  advance(parent, 8);
  Sequence child = parent.fork(8);
  parent.rewind(6);
  parent.reserve(4);
  parent.abandon();
  EXPECT_EQ(parent.length(), 6u);
  // The copy is still due: the replaced page holds committed positions.
  EXPECT_THAT(parent.take_copies(), ElementsAre(PageCopy{0, 1, 2, 2}));
}

}  // namespace
}  // namespace lemma::state
