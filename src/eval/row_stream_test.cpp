// SPDX-License-Identifier: Apache-2.0
#include "eval/row_stream.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lemma::eval {
namespace {

constexpr std::size_t kWidth = 8, kRowBytes = kWidth * sizeof(float);

backend::Program program_of(int tensors) {
  backend::Program program;
  for (int i = 0; i < tensors; ++i) program.tensor("site" + std::to_string(i), kWidth);
  return program;
}

/// Publishes one row for each tensor, its id in every element.
void publish(RowStream& stream, const backend::Program& program) {
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    std::vector<float> row(kWidth, float(i));
    stream.observe(std::int32_t(i), program.tensors[i], {}, row);
  }
  stream.end();
}

std::vector<bool> all(const backend::Program& program) {
  return std::vector<bool>(program.tensors.size(), true);
}

TEST(RowStream, HoldsNoMoreThanItsBudgetWhereRowsAreTakenInOrder) {
  const backend::Program program = program_of(100);
  RowStream stream(program, all(program), 3 * kRowBytes);
  stream.begin();
  std::thread publisher([&] { publish(stream, program); });
  for (std::int32_t i = 0; i < 100; ++i) {
    const std::span<const float> rows = stream.rows(i);
    ASSERT_EQ(rows.size(), kWidth);
    EXPECT_EQ(rows[0], float(i));
    stream.drop(i);
  }
  publisher.join();
  EXPECT_LE(stream.most_held(), 3 * kRowBytes);
  EXPECT_GE(stream.most_held(), kRowBytes);
}

TEST(RowStream, GivesARowThatComesLateAlthoughTheBudgetIsUsedUp) {
  const backend::Program program = program_of(10);
  RowStream stream(program, all(program), kRowBytes);
  stream.begin();
  std::thread publisher([&] { publish(stream, program); });
  EXPECT_EQ(stream.rows(9)[0], 9.f);
  EXPECT_EQ(stream.rows(2)[0], 2.f);
  for (std::int32_t i = 0; i < 10; ++i) stream.drop(i);
  publisher.join();
}

TEST(RowStream, TakesATensorLargerThanTheBudget) {
  const backend::Program program = program_of(2);
  RowStream stream(program, all(program), 1);
  stream.begin();
  std::thread publisher([&] { publish(stream, program); });
  for (std::int32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(stream.rows(i)[0], float(i));
    stream.drop(i);
  }
  publisher.join();
}

TEST(RowStream, GivesNothingForARowThatNeverCame) {
  const backend::Program program = program_of(2);
  RowStream stream(program, all(program), kRowBytes);
  stream.begin();
  std::thread publisher([&] { stream.end(); });
  EXPECT_TRUE(stream.rows(1).empty());
  publisher.join();
}

TEST(RowStream, LetsThePublisherFinishWhenNobodyReadsAnyMore) {
  const backend::Program program = program_of(10);
  RowStream stream(program, all(program), kRowBytes);
  stream.begin();
  std::thread publisher([&] { publish(stream, program); });
  EXPECT_EQ(stream.rows(0)[0], 0.f);
  stream.close();
  publisher.join();
}

TEST(RowStream, WantsWhatItWasToldTo) {
  const backend::Program program = program_of(3);
  RowStream stream(program, {true, false, true}, kRowBytes);
  EXPECT_TRUE(stream.wants(program.tensors[0]));
  EXPECT_FALSE(stream.wants(program.tensors[1]));
  EXPECT_TRUE(stream.wants(program.tensors[2]));
}

}  // namespace
}  // namespace lemma::eval
