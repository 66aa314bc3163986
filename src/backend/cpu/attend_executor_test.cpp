// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/conformance.hpp"
#include "backend/cpu/cpu_backend.hpp"

namespace lemma::cpu {
namespace {

using namespace backend::conformance;
using algorithm::RowFormat;

Case heads_case(std::uint32_t query_heads, std::uint32_t kv_heads, std::uint32_t dim) {
  algorithm::GqaSpec spec{.query_heads = query_heads, .kv_heads = kv_heads};
  spec.head_dim = spec.value_dim = dim;
  spec.scale = 1.f / std::sqrt(float(dim));
  return attend_case(spec, "side by side");
}

/// The rows in pages of 64 and more, which are read in place, or of fewer, whose heads are decoded
/// one by one.
std::vector<float> rows_of(const Case& c, const Schedule& schedule, std::uint32_t page_size,
                           int threads) {
  return run_case(*make_backend({.threads = threads}), c,
                  {.schedule = schedule, .format = RowFormat::kF16, .page_size = page_size})
      .rows;
}

TEST(AttendExecutor, TakesTheHeadsOfALongHistorySideBySideWithTheSameBits) {
  // One thread has enough to do with both KV heads of a span at once, three have not.
  const Case c = heads_case(4, 2, 16);
  Schedule schedule = chunks(2560, {128});
  schedule.pop_back();
  for (const std::uint32_t rows : {1u, 2u, 1u}) schedule.push_back({Part{0, rows}});
  const std::vector<float> want = rows_of(c, schedule, 64, 3);
  EXPECT_TRUE(same_bits(want, rows_of(c, schedule, 64, 1)));
  EXPECT_TRUE(same_bits(want, rows_of(c, schedule, 128, 1)));
}

TEST(AttendExecutor, TakesSomeHeadsOfSeveralHistoriesSideBySideWithTheSameBits) {
  const Case c = heads_case(8, 8, 32);
  const std::vector<float> want = rows_of(c, chunks(140, {1, 70, 1}), 8, 1);
  for (const int threads : {1, 2}) {
    EXPECT_TRUE(same_bits(want, rows_of(c, in_company(140, {1, 70, 1}), 64, threads))) << threads;
  }
}

TEST(AttendExecutor, CutsManyRowsIntoLargeAndSmallBlocksWithTheSameBits) {
  const Case c = heads_case(16, 2, 16);
  const std::vector<float> want = rows_of(c, chunks(250, {1, 128, 3}), 8, 1);
  for (const int threads : {1, 4}) {
    EXPECT_TRUE(same_bits(want, rows_of(c, chunks(250, {120, 128}), 64, threads))) << threads;
  }
}

TEST(AttendExecutor, AttendsToEnteredRowsAloneInWholeNumbersAndNotWhereAllWeightsAreF32) {
  const Case mixed = heads_case(4, 2, 16);
  Case f32 = mixed;
  f32.weights.pop_back();  // the one of 16 bits, which nothing uses
  const auto run = [](const Case& c, backend::Numerics numerics, state::TokenClass token_class) {
    return run_case(*make_backend({.threads = 1, .numerics = numerics}), c,
                    {.schedule = {{Part{0, 90, token_class}}}, .max_rows = 90});
  };
  const auto differs = [&](const Case& c, state::TokenClass token_class) {
    return !same_bits(run(c, backend::Numerics::kFast, token_class).rows,
                      run(c, backend::Numerics::kStrict, token_class).rows);
  };
  const std::string words = run(mixed, backend::Numerics::kFast, state::TokenClass::kEntered)
                                .placements.back()
                                .implementation;
  EXPECT_EQ(words.find("whole numbers entered") != std::string::npos,
            differs(mixed, state::TokenClass::kEntered));
  EXPECT_FALSE(differs(mixed, state::TokenClass::kGenerated));
  EXPECT_FALSE(differs(f32, state::TokenClass::kEntered));
}

}  // namespace
}  // namespace lemma::cpu
