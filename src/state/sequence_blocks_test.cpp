// SPDX-License-Identifier: Apache-2.0
// Blocks of fixed slots: when they change, what a snapshot keeps and who shares them. The recurrent
// state of the tests is a sum that no rewind could take back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lemma/error.hpp"
#include "state/sequence.hpp"

namespace lemma::state {
namespace {

using algorithm::Slot;
using algorithm::SlotKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Tokens = std::vector<std::int32_t>;

constexpr std::uint32_t kRows = 0, kBlocks = 1;

/// A backend in miniature: a block is a number, which a token changes depending on what it was.
class Recurrent : public testing::Test {
 protected:
  explicit Recurrent(std::uint32_t window = 0, std::uint32_t snapshots = 3, std::size_t blocks = 20)
      : layout_(std::vector<Slot>{{.width = 8, .window = window},
                                  {.kind = SlotKind::kFixed, .width = 16}},
                {.format = algorithm::RowFormat::kF32,
                 .page_size = 4,
                 .slack = 0,
                 .snapshots = snapshots}),
        pool_(layout_, std::vector<std::size_t>{50, blocks}) {}

  static std::uint64_t after(std::uint64_t value, const Tokens& tokens) {
    for (const std::int32_t token : tokens) value = value * 31 + std::uint64_t(token) + 1;
    return value;
  }
  std::uint64_t value(const Sequence& s) const {
    return s.block() == kNoPage ? 0 : memory_.at(s.block());
  }
  void write(Sequence& s, const Tokens& tokens) {
    s.reserve(tokens.size());
    s.take_copies();
    memory_[s.next_block()] = after(value(s), tokens);
  }
  void step(Sequence& s, const Tokens& tokens) {
    write(s, tokens);
    s.commit(tokens, TokenClass::kEntered);
  }

  Layout layout_;
  PagePool pool_;
  std::map<PageId, std::uint64_t> memory_;
};

TEST_F(Recurrent, OwnsABlockFromItsFirstStepAndTwoWhileAStepRuns) {
  Sequence s(pool_);
  EXPECT_EQ(pool_.used(kBlocks), 0u);
  s.reserve(2);
  EXPECT_EQ(s.block(), kNoPage);
  EXPECT_NE(s.next_block(), kNoPage);
  const PageId first = s.next_block();
  s.reserve(2);
  EXPECT_EQ(s.next_block(), first);
  s.commit(Tokens{1, 2}, TokenClass::kEntered);
  EXPECT_EQ(s.block(), first);
  EXPECT_EQ(s.next_block(), kNoPage);
  EXPECT_EQ(pool_.used(kBlocks), 1u);
  s.reserve(1);
  EXPECT_EQ(pool_.used(kBlocks), 2u);
  s.commit(Tokens{3}, TokenClass::kEntered);
  EXPECT_NE(s.block(), first);
  EXPECT_EQ(pool_.used(kBlocks), 1u);
  EXPECT_THAT(s.pages(kBlocks), IsEmpty());
}

TEST_F(Recurrent, KeepsItsBlockWhenAStepFails) {
  Sequence s(pool_);
  step(s, {1, 2, 3});
  const PageId block = s.block();
  write(s, {4, 5});
  s.abandon();
  EXPECT_EQ(s.block(), block);
  EXPECT_EQ(s.next_block(), kNoPage);
  EXPECT_EQ(value(s), after(0, {1, 2, 3}));
  EXPECT_EQ(pool_.used(kBlocks), 1u);
}

TEST_F(Recurrent, LeavesNoBlockBehindAFirstStepThatFails) {
  Sequence s(pool_);
  write(s, {1});
  s.abandon();
  EXPECT_EQ(s.block(), kNoPage);
  EXPECT_EQ(pool_.used_bytes(), 0u);
}

TEST_F(Recurrent, CanBeCutToNothingToNowAndToItsSnapshots) {
  Sequence s(pool_);
  for (int i = 0; i < 3; ++i) {
    step(s, Tokens(5, i));
    s.snapshot();
  }
  step(s, {9, 9});
  EXPECT_THAT(s.snapshots(), ElementsAre(5, 10, 15));
  EXPECT_EQ(s.reachable(17).length, 17u);
  EXPECT_EQ(s.reachable(17).reason, "");
  EXPECT_EQ(s.reachable(10).length, 10u);
  EXPECT_EQ(s.reachable(10).reason, "");
  EXPECT_EQ(s.reachable(14).length, 10u);
  EXPECT_THAT(s.reachable(14).reason, HasSubstr("cut at 14"));
  EXPECT_THAT(s.reachable(14).reason, HasSubstr("stands at 10"));
  EXPECT_EQ(s.reachable(4).length, 0u);
  EXPECT_EQ(s.reachable(0).reason, "");
}

TEST_F(Recurrent, ComputesTheSameAgainFromASnapshot) {
  Sequence s(pool_);
  step(s, {1, 2, 3, 4, 5});
  s.snapshot();
  step(s, {6});
  step(s, {7, 8});
  const std::uint64_t once = value(s);
  s.rewind(5);
  EXPECT_EQ(value(s), after(0, {1, 2, 3, 4, 5}));
  step(s, {6});
  step(s, {7, 8});
  EXPECT_EQ(value(s), once);
  s.rewind(5);  // the snapshot is still there, and unharmed
  step(s, {9});
  EXPECT_EQ(value(s), after(0, {1, 2, 3, 4, 5, 9}));
}

TEST_F(Recurrent, ForgetsSnapshotsBehindACut) {
  Sequence s(pool_);
  for (int i = 0; i < 3; ++i) {
    step(s, {i});
    s.snapshot();
  }
  s.rewind(1);
  EXPECT_THAT(s.snapshots(), ElementsAre(1));
  EXPECT_EQ(pool_.used(kBlocks), 1u);
  s.rewind(0);
  EXPECT_THAT(s.snapshots(), IsEmpty());
  EXPECT_EQ(pool_.used_bytes(), 0u);
}

TEST_F(Recurrent, ThinsItsSnapshotsFromTheMiddle) {
  Sequence s(pool_);
  for (int i = 0; i < 7; ++i) {
    step(s, {i});
    s.snapshot();
    s.snapshot();  // the same length again is no other snapshot
  }
  EXPECT_THAT(s.snapshots(), ElementsAre(1, 6, 7));
  EXPECT_EQ(pool_.used(kBlocks), 3u);
  s.reserve(1);
  EXPECT_EQ(pool_.used(kBlocks), layout_.pages_for(kBlocks, 8, 1) - 1);
  s.commit(Tokens{7}, TokenClass::kEntered);
  s.reserve(1);
  EXPECT_EQ(pool_.used(kBlocks), layout_.pages_for(kBlocks, 9, 1));
}

TEST_F(Recurrent, TakesNoSnapshotOfNothing) {
  Sequence s(pool_);
  s.snapshot();
  EXPECT_THAT(s.snapshots(), IsEmpty());
  const Layout plain(std::vector<Slot>{{.width = 8}}, {});
  PagePool pool(plain, std::vector<std::size_t>{4});
  Sequence rows(pool);
  rows.reserve(1);
  rows.commit(Tokens{1}, TokenClass::kEntered);
  rows.snapshot();
  EXPECT_THAT(rows.snapshots(), IsEmpty());
  EXPECT_EQ(rows.block(), kNoPage);
}

TEST_F(Recurrent, ForksWithTheBlockOfNowAndThatOfASnapshot) {
  std::optional<Sequence> parent(std::in_place, pool_);
  step(*parent, {1, 2, 3});
  parent->snapshot();
  step(*parent, {4, 5});
  Sequence now = parent->fork(5), then = parent->fork(3);
  EXPECT_EQ(pool_.used(kBlocks), 2u);
  step(*parent, {6});
  parent.reset();
  EXPECT_EQ(value(now), after(0, {1, 2, 3, 4, 5}));
  EXPECT_EQ(value(then), after(0, {1, 2, 3}));
  now.take_copies();
  then.take_copies();
  step(now, {7});
  step(then, {7});
  EXPECT_EQ(value(now), after(0, {1, 2, 3, 4, 5, 7}));
  EXPECT_EQ(value(then), after(0, {1, 2, 3, 7}));
  EXPECT_THAT(now.snapshots(), ElementsAre(3));
  now.rewind(3);
  EXPECT_EQ(value(now), after(0, {1, 2, 3}));
}

TEST_F(Recurrent, GivesAllBlocksBackAtItsEnd) {
  {
    Sequence s(pool_);
    step(s, {1, 2});
    s.snapshot();
    step(s, {3});
    Sequence child = s.fork(2);
    s.reserve(1);
    Sequence moved(std::move(s));
    EXPECT_EQ(pool_.used(kBlocks), 3u);
    EXPECT_THAT(moved.snapshots(), ElementsAre(2));
  }
  EXPECT_EQ(pool_.used_bytes(), 0u);
}

TEST_F(Recurrent, StopsAtACommitOfHalfAStep) {
  Sequence s(pool_);
  s.reserve(3);
  EXPECT_DEATH(s.commit(Tokens{1, 2}, TokenClass::kEntered), "reserved_");
}

TEST_F(Recurrent, StopsAtACutThatNoSnapshotAllows) {
  Sequence s(pool_);
  step(s, {1, 2, 3});
  EXPECT_DEATH(s.rewind(2), "can_rewind");
  EXPECT_DEATH(s.fork(2), "can_rewind");
}

struct FewBlocks : Recurrent {
  FewBlocks() : Recurrent(0, 3, 3) {}
};

TEST_F(FewBlocks, LetASnapshotGiveWayToAStep) {
  Sequence s(pool_);
  for (int i = 0; i < 2; ++i) {
    step(s, {i});
    s.snapshot();
  }
  step(s, {2});  // one block and two snapshots: all three
  ASSERT_EQ(pool_.free(kBlocks), 0u);
  step(s, {3});
  EXPECT_THAT(s.snapshots(), ElementsAre(2));
  EXPECT_EQ(value(s), after(0, {0, 1, 2, 3}));
}

TEST_F(FewBlocks, RefuseAStepWhenOthersHoldThemAll) {
  Sequence a(pool_), b(pool_), c(pool_);
  step(a, {1});
  step(b, {1});
  step(c, {1});
  c.snapshot();  // of the block that is needed anyway
  try {
    c.reserve(1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    EXPECT_THAT(error.what(), HasSubstr("0 of 3 free"));
  }
  EXPECT_EQ(c.reserved(), 0u);
  EXPECT_EQ(pool_.used(kRows), 3u);
  EXPECT_THAT(c.snapshots(), ElementsAre(1));
}

struct WithAWindow : Recurrent {
  WithAWindow() : Recurrent(4) {}
};

TEST_F(WithAWindow, ReachASnapshotOnlyWhileItsKeysAreHeld) {
  Sequence s(pool_);
  step(s, {1, 2, 3, 4, 5});
  s.snapshot();
  step(s, {6});
  EXPECT_EQ(s.reachable(5).length, 5u);
  for (int i = 0; i < 12; ++i) step(s, {i});
  const RewindPoint point = s.reachable(7);
  EXPECT_EQ(point.length, 0u);
  EXPECT_THAT(point.reason, HasSubstr("a window of 4"));
}

}  // namespace
}  // namespace lemma::state
