// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "backend/cpu/executor.hpp"
#include "backend/cpu/kernels/select.hpp"
#include "base/cpu_features.hpp"

namespace lemma::cpu {
namespace {

using backend::Tensor;

/// A route over two rows of logits of three experts, one segment a row, borrowed.
class BorrowedExecutor : public testing::Test {
 protected:
  BorrowedExecutor() {
    op_.spec.experts = 3;
    op_.spec.chosen = 1;
    op_.logits = program_.tensor("logits", 3);
    op_.ids = program_.tensor("ids", 1);
    op_.weights = program_.tensor("weights", 1);
    program_.operations.push_back(op_);
    context_ = std::make_unique<Context>(kernels(base::best_isa()), pool_, weights_, program_,
                                         state_, 2, 2);
    executor_ = borrow(op_, *context_);
  }

  void run(std::initializer_list<float> logits) {
    std::copy(logits.begin(), logits.end(), context_->arena.data(op_.logits));
    const std::vector<std::int32_t> tokens = {0, 0};
    const std::vector<algorithm::RopePosition> positions(2);
    const std::vector<backend::Segment> segments = {{.first_row = 0, .rows = 1},
                                                    {.first_row = 1, .rows = 1}};
    const backend::Step step{tokens, positions, segments, {}};
    context_->begin(step);
    executor_->run(*context_);
  }

  base::ThreadPool pool_{1};
  std::deque<Weight> weights_;
  backend::Program program_;
  state::Layout layout_;
  backend::HostState state_{layout_, {}};
  backend::Route op_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(BorrowedExecutor, SaysThatTheReferenceComputes) {
  EXPECT_TRUE(executor_->borrowed());
  EXPECT_EQ(executor_->implementation(), "reference");
}

TEST_F(BorrowedExecutor, WorksOnTheContextsTensors) {
  run({0, 1, 0, 0, 0, 1});
  EXPECT_EQ(context_->arena.row(op_.ids, 0)[0], 1.f);
  EXPECT_EQ(context_->arena.row(op_.ids, 1)[0], 2.f);
  EXPECT_EQ(context_->results()[0].status, backend::SegmentStatus::kOk);
}

TEST_F(BorrowedExecutor, ReportsTheSegmentThatFailsAlone) {
  run({0, 1, 0, 0, std::numeric_limits<float>::quiet_NaN(), 1});
  EXPECT_EQ(context_->results()[0].status, backend::SegmentStatus::kOk);
  EXPECT_EQ(context_->results()[1].status, backend::SegmentStatus::kNonFinite);
  EXPECT_EQ(context_->results()[1].site, op_.logits.id);
}

}  // namespace
}  // namespace lemma::cpu
