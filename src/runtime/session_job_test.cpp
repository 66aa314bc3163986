// SPDX-License-Identifier: Apache-2.0
// What a session reuses and where a failed call leaves it, against scripted logits.
#include "runtime/session_job.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/scripted_machine.hpp"

namespace lemma::runtime {
namespace {

using namespace scripted;
using state::TokenClass;
using ::testing::HasSubstr;

/// A session without its engine.
class Timeline {
 public:
  explicit Timeline(Loop& loop) : loop_(loop) {}
  ~Timeline() {
    loop_.loop.call([last = std::move(state)] { last->sequence.reset(); });
  }
  SyncResult run(SessionJob::Kind kind, const History& tokens, bool class_ignored = false) {
    const auto job = std::make_shared<SessionJob>(kind, state, tokens, class_ignored);
    loop_.loop.submit(job);
    return job->wait();
  }
  SyncResult sync(const History& tokens, bool class_ignored = false) {
    return run(SessionJob::Kind::kSync, tokens, class_ignored);
  }
  History tokens() const {
    const auto held = state->sequence->tokens();
    return {held.begin(), held.end()};
  }

  std::shared_ptr<SessionState> state = std::make_shared<SessionState>();

 private:
  Loop& loop_;
};

History count(std::size_t tokens) {
  History history;
  for (std::size_t i = 0; i < tokens; ++i) history.push_back(TokenId(10 + i % 200));
  return history;
}

History operator+(History a, const History& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(SessionJob, ComputesOnlyWhatIsAppended) {
  Loop loop(noise, {.context = 2000, .pages = 2000});
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(1000));
  EXPECT_EQ(loop.machine.rows, 1000u);
  const SyncResult result = timeline.sync(count(1010));
  EXPECT_EQ(loop.machine.rows, 1010u);
  EXPECT_EQ(result.reused, 1000u);
  EXPECT_EQ(result.computed, 10u);
  EXPECT_EQ(result.reason, "");
  EXPECT_EQ(timeline.state->logits, noise(count(1010)));
}

TEST(SessionJob, ComputesNothingForAnEqualTimeline) {
  Loop loop(noise);
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(12));
  const SyncResult result = timeline.sync(count(12));
  EXPECT_EQ(result.reused, 12u);
  EXPECT_EQ(result.computed, 0u);
  EXPECT_EQ(loop.machine.rows, 12u);
  EXPECT_EQ(timeline.state->logits, noise(count(12)));
}

TEST(SessionJob, ComputesTheLastTokenOfAShorterTimelineForItsLogits) {
  Loop loop(noise);
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(12));
  const SyncResult result = timeline.sync(count(8));
  EXPECT_EQ(result.reused, 7u);
  EXPECT_EQ(result.computed, 1u);
  EXPECT_THAT(result.reason, HasSubstr("logits"));
  EXPECT_EQ(timeline.tokens(), count(8));
  EXPECT_EQ(timeline.state->logits, noise(count(8)));
}

TEST(SessionJob, CutsBackToTheCommonPrefixOfABranch) {
  Loop loop(noise);
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(12));
  const History branch = count(6) + History{90, 91};
  const SyncResult result = timeline.sync(branch);
  EXPECT_EQ(result.reused, 6u);
  EXPECT_EQ(result.computed, 2u);
  EXPECT_EQ(result.reason, "");
  EXPECT_EQ(timeline.tokens(), branch);
}

TEST(SessionJob, EntersGeneratedTokensAnew) {
  Loop loop(noise);
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(5));
  timeline.run(SessionJob::Kind::kDecode, {90});
  timeline.run(SessionJob::Kind::kDecode, {91});
  const History next = count(5) + History{90, 91, 40};
  const SyncResult result = timeline.sync(next);
  EXPECT_EQ(result.reused, 5u);
  EXPECT_EQ(result.computed, 3u);
  EXPECT_THAT(result.reason, HasSubstr("generated"));
  loop.stop();
  EXPECT_EQ(loop.machine.ran, (std::vector<RanSegment>{{0, 5, TokenClass::kEntered},
                                                       {5, 1, TokenClass::kGenerated},
                                                       {6, 1, TokenClass::kGenerated},
                                                       {5, 3, TokenClass::kEntered}}));
}

TEST(SessionJob, KeepsGeneratedTokensWhereTheClassMakesNoDifference) {
  Loop loop(noise);
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(5));
  timeline.run(SessionJob::Kind::kDecode, {90});
  const SyncResult result = timeline.sync(count(5) + History{90, 40}, true);
  EXPECT_EQ(result.reused, 6u);
  EXPECT_EQ(result.computed, 1u);
  EXPECT_EQ(result.reason, "");
}

TEST(SessionJob, ReturnsToWhereItStoodWhenAStepFails) {
  Loop loop(noise, {.max_rows = 4, .max_sequences = 2});
  bool failing = false;
  loop.machine.result = [&](const History& history) {
    return failing && history.size() >= 12
               ? backend::SegmentResult{backend::SegmentStatus::kNonFinite, 0}
               : backend::SegmentResult{};
  };
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(5));
  failing = true;
  EXPECT_THROW(timeline.run(SessionJob::Kind::kAppend, count(9)), Error);
  EXPECT_EQ(timeline.tokens(), count(5));
  EXPECT_EQ(timeline.state->logits, noise(count(5)));
  failing = false;
  const SyncResult again = timeline.sync(count(5) + count(9));
  EXPECT_EQ(again.reused, 5u);
  EXPECT_EQ(timeline.state->logits, noise(count(5) + count(9)));
}

TEST(SessionJob, LeavesNoLogitsOfACutTimelineWhenItFails) {
  Loop loop(noise);
  bool failing = false;
  loop.machine.result = [&](const History&) {
    return failing ? backend::SegmentResult{backend::SegmentStatus::kDevice, -1}
                   : backend::SegmentResult{};
  };
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(8));
  failing = true;
  EXPECT_THROW(timeline.sync(count(5) + History{99, 98, 97}), Error);
  EXPECT_EQ(timeline.tokens(), count(5));
  EXPECT_TRUE(timeline.state->logits.empty());
}

/// Timelines whose state cannot be cut where it has no snapshot.
TEST(RecurrentSession, ComesBackToTheEndOfItsPromptWithItsLogits) {
  Loop loop(noise, {.blocks = true});
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(12));
  for (const TokenId token : {90, 91, 92}) timeline.run(SessionJob::Kind::kDecode, {token});
  const SyncResult result = timeline.sync(count(12));
  EXPECT_EQ(result.reused, 12u);
  EXPECT_EQ(result.computed, 0u);
  EXPECT_EQ(result.reason, "");
  EXPECT_EQ(timeline.tokens(), count(12));
  EXPECT_EQ(timeline.state->logits, noise(count(12)));
  EXPECT_EQ(loop.machine.rows, 15u);
}

TEST(RecurrentSession, ContinuesFromTheSnapshotBeforeABranch) {
  Loop loop(noise, {.blocks = true});
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(5));
  timeline.sync(count(9));
  const SyncResult result = timeline.sync(count(7) + History{90, 91});
  EXPECT_EQ(result.reused, 5u);
  EXPECT_EQ(result.computed, 4u);
  EXPECT_THAT(result.reason, HasSubstr("the newest snapshot before it stands at 5"));
  EXPECT_EQ(timeline.state->logits, noise(count(7) + History{90, 91}));
  const SyncResult early = timeline.sync(count(4) + History{90});
  EXPECT_EQ(early.reused, 0u);
  EXPECT_THAT(early.reason, HasSubstr("cut at 4"));
}

TEST(RecurrentSession, EntersTheNextTurnBehindTheLastPrompt) {
  Loop loop(noise, {.blocks = true});
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(5));
  for (const TokenId token : {90, 91}) timeline.run(SessionJob::Kind::kDecode, {token});
  const SyncResult result = timeline.sync(count(5) + History{90, 91, 40});
  EXPECT_EQ(result.reused, 5u);
  EXPECT_EQ(result.computed, 3u);
}

TEST(RecurrentSession, ComputesFromFurtherBackWhenTheLogitsOfASnapshotAreNotKept) {
  Loop loop(noise, {.blocks = true});
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(5));
  timeline.sync(count(9));
  timeline.sync(count(12));
  const SyncResult result = timeline.sync(count(9));  // logits are kept after 12 only
  EXPECT_EQ(result.reused, 5u);
  EXPECT_EQ(result.computed, 4u);
  EXPECT_THAT(result.reason, HasSubstr("computed again for its logits"));
  EXPECT_THAT(result.reason, HasSubstr("stands at 5"));
  EXPECT_EQ(timeline.state->logits, noise(count(9)));
}

TEST(RecurrentSession, FallsBackToASnapshotWhenALaterStepFails) {
  Loop loop(noise, {.max_rows = 4, .max_sequences = 2, .blocks = true});
  bool failing = false;
  loop.machine.result = [&](const History& history) {
    return failing && history.size() >= 12
               ? backend::SegmentResult{backend::SegmentStatus::kNonFinite, 0}
               : backend::SegmentResult{};
  };
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(5));
  timeline.run(SessionJob::Kind::kDecode, {90});
  failing = true;
  EXPECT_THROW(timeline.run(SessionJob::Kind::kAppend, count(9)), Error);
  EXPECT_EQ(timeline.tokens(), count(5));
  EXPECT_EQ(timeline.state->logits, noise(count(5)));
  failing = false;
  EXPECT_EQ(timeline.sync(count(8)).reused, 5u);
}

TEST(RecurrentSession, KeepsSnapshotsInsideALongPrompt) {
  Loop loop(noise, {.max_rows = 1000, .context = 10000, .pages = 3000, .blocks = true});
  loop.start();
  Timeline timeline(loop);
  timeline.sync(count(9000));
  EXPECT_EQ(timeline.sync(count(8999) + History{90}).reused, 5000u);
}

class CopiedSession : public testing::TestWithParam<bool> {};

TEST_P(CopiedSession, GoesItsOwnWay) {
  Loop loop(noise, {.blocks = GetParam()});
  Timeline timeline(loop);
  SessionState saved;
  loop.start();
  timeline.sync(count(9));
  timeline.run(SessionJob::Kind::kDecode, {90});
  loop.stop();
  copy_session(*timeline.state, saved, loop.store());
  timeline.state->cut(9);
  EXPECT_EQ(saved.length(), 10u);
  EXPECT_EQ(saved.logits, noise(count(9) + History{90}));
  EXPECT_EQ(saved.snapshot_length, GetParam() ? 9u : 0u);
  SessionState back;
  copy_session(saved, back, loop.store());
  EXPECT_TRUE(std::ranges::equal(back.sequence->tokens(), saved.sequence->tokens()));
  EXPECT_EQ(back.sequence->classes().back(), TokenClass::kGenerated);
  saved = {};
  back = {};
  timeline.state->sequence.reset();
  EXPECT_EQ(loop.pool().used_bytes(), 0u);
}

TEST_P(CopiedSession, LeavesTheTargetAloneWhenPagesAreShort) {
  Loop loop(noise, {.pages = 3, .blocks = GetParam()});
  Timeline timeline(loop);
  loop.start();
  timeline.sync(count(10));
  loop.stop();
  SessionState target{nullptr, {1.f}};
  EXPECT_THROW(copy_session(*timeline.state, target, loop.store()), Error);
  EXPECT_EQ(target.logits, std::vector<float>{1.f});
  timeline.state->sequence.reset();
  EXPECT_EQ(loop.pool().used_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(RowsAndBlocks, CopiedSession, testing::Bool());

TEST(PlanReuse, SaysWhyAWindowReachesLessFar) {
  state::Layout layout(std::vector<algorithm::Slot>{{.width = 1, .window = 4}},
                       {.format = algorithm::RowFormat::kF32, .page_size = 4, .slack = 4});
  state::PagePool pool(layout, std::vector<std::size_t>{100});
  state::Sequence sequence(pool);
  const History tokens = count(40);
  for (const TokenId token : tokens) {
    sequence.reserve(1);
    sequence.commit(std::span(&token, 1), TokenClass::kEntered);
  }
  const Reuse near = plan_reuse(sequence, count(38) + History{7}, true, false);
  EXPECT_EQ(near.length, 38u);
  EXPECT_EQ(near.reason, "");
  const Reuse far = plan_reuse(sequence, count(10) + History{7}, true, false);
  EXPECT_EQ(far.length, 0u);
  EXPECT_THAT(far.reason, HasSubstr("window"));
}

}  // namespace
}  // namespace lemma::runtime
