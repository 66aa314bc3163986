// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_runner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/scripted_machine.hpp"

namespace lemma::runtime {
namespace {

using namespace scripted;
using state::TokenClass;

class StepRunnerTest : public testing::Test {
 protected:
  StepRunnerTest()
      : machine_(noise),
        layout_(std::vector<algorithm::Slot>{{.width = 1}},
                {.format = algorithm::RowFormat::kF32, .page_size = 4}),
        pool_(layout_, std::vector<std::size_t>{4}),
        sites_{{"layers.0.ffn.output", 1}},
        runner_({&machine_, &store_, sites_, 16}),
        first_(pool_),
        second_(pool_) {}

  Executable machine_;
  state::Layout layout_;
  state::PagePool pool_;
  Store store_;
  std::vector<backend::Program::Site> sites_;
  StepRunner runner_;
  state::Sequence first_, second_;
};

TEST_F(StepRunnerTest, CommitsPartsThatRanAndGivesTheirLogits) {
  const History a = {20, 21, 22}, b = {30};
  const std::vector<StepPart> parts = {
      {&first_, a, TokenClass::kEntered, StepPart::Logits::kNone},
      {&second_, b, TokenClass::kGenerated, StepPart::Logits::kLast}};
  runner_.run(parts);
  EXPECT_EQ(first_.length(), 3u);
  EXPECT_EQ(second_.classes()[0], TokenClass::kGenerated);
  EXPECT_TRUE(std::ranges::equal(runner_.logits(1, 0), noise(b)));
  EXPECT_EQ(runner_.rows_run(), 4u);
  EXPECT_NO_THROW(runner_.check(0));
}

TEST_F(StepRunnerTest, LeavesASequenceAsItWasWhenItsPartFails) {
  machine_.result = [](const History& history) {
    return history[0] == 20 ? backend::SegmentResult{backend::SegmentStatus::kNonFinite, 0}
                            : backend::SegmentResult{};
  };
  const History a = {20, 21, 22}, b = {30};
  const std::vector<StepPart> parts = {{&first_, a}, {&second_, b}};
  runner_.run(parts);
  EXPECT_EQ(first_.length(), 0u);
  EXPECT_EQ(first_.reserved(), 0u);
  EXPECT_EQ(second_.length(), 1u);
  EXPECT_EQ(pool_.used(0), 1u);
  EXPECT_NO_THROW(runner_.check(1));
  try {
    runner_.check(0);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNonFinite);
    EXPECT_THAT(error.what(), testing::HasSubstr("layers.0.ffn.output"));
  }
}

TEST_F(StepRunnerTest, ChangesNothingWhenPagesAreShort) {
  const History a(6, 20), b(12, 30);  // two and three pages of the four
  const std::vector<StepPart> parts = {{&first_, a}, {&second_, b}};
  EXPECT_THROW(runner_.run(parts), Error);
  EXPECT_EQ(first_.length() + second_.length(), 0u);
  EXPECT_EQ(pool_.used(0), 0u);
  EXPECT_EQ(machine_.rows, 0u);
}

}  // namespace
}  // namespace lemma::runtime
