// SPDX-License-Identifier: Apache-2.0
#include "model/plan_cost.hpp"

#include <gtest/gtest.h>

#include "lemma/error.hpp"
#include "model/arch/arch.hpp"
#include "model/arch/tiny_checkpoint.hpp"

namespace lemma::model {
namespace {

using algorithm::RowFormat;
using arch::TinyCheckpoint;
using weights::Format;

// Parameters of TinyCheckpoint::llama, by hand.
constexpr std::uint64_t kTable = 512 * 64, kNorm = 64;
constexpr std::uint64_t kBlock = 2 * kNorm + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 80 * 64;

Cost cost(const TinyCheckpoint& checkpoint, const CostOptions& options = {}) {
  return cost_of(make_plan(checkpoint, {}), checkpoint, options);
}

TEST(Cost, CountsATiedMatrixOnce) {
  const Cost tied = cost(TinyCheckpoint::llama(2));
  EXPECT_EQ(tied.parameters, kTable + kNorm + 2 * kBlock);
  EXPECT_EQ(tied.weight_bytes, tied.parameters * 4);
  TinyCheckpoint own = TinyCheckpoint::llama(2);
  own.add_tensor("output.weight", {512, 64});
  EXPECT_EQ(cost(own).parameters, tied.parameters + kTable);
}

TEST(Cost, SharesBytesOutByFormat) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(1);
  tiny.remove_tensor("token_embd.weight").add_tensor("token_embd.weight", {512, 64}, Format::kQ8_0);
  const Cost found = cost(tiny);
  ASSERT_EQ(found.weights.size(), 2u);
  EXPECT_EQ(found.weights[0].format, Format::kF32);
  EXPECT_EQ(found.weights[0].bytes, (kNorm + kBlock) * 4);
  EXPECT_EQ(found.weights[1].format, Format::kQ8_0);
  EXPECT_EQ(found.weights[1].parameters, kTable);
  EXPECT_EQ(found.weights[1].bytes, kTable / 32 * 34);
}

TEST(Cost, AddsTheCutsOfAFusedMatrixUpToTheWhole) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(1);
  for (const char* part : {"attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"})
    tiny.remove_tensor(std::string("blk.0.") + part + ".weight");
  tiny.add_tensor("blk.0.attn_qkv.weight", {128, 64}).add_tensor("blk.0.ffn_up.weight", {160, 64});
  EXPECT_EQ(cost(tiny).parameters, kTable + kNorm + kBlock);
}

TEST(Cost, CountsKeysAndValuesOfTheContext) {
  const Cost found =
      cost(TinyCheckpoint::llama(3), {.context = 256, .row_format = RowFormat::kF16});
  // 2 x layers x tokens x kv heads x head dim x bytes; 256 positions are whole pages.
  EXPECT_EQ(found.state_formula_bytes, 2u * 3 * 256 * 2 * 16 * 2);
  EXPECT_EQ(found.state_bytes, found.state_formula_bytes);
  EXPECT_EQ(cost(TinyCheckpoint::llama(3), {.row_format = RowFormat::kF32}).state_bytes,
            2 * found.state_bytes);
}

TEST(Cost, KeepsNoMoreThanAWindowNeeds) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(2);
  tiny.set("llama.context_length", std::int64_t{8192});
  const Cost full = cost(tiny);
  tiny.set("llama.attention.sliding_window", std::int64_t{256});
  const Cost windowed = cost(tiny);
  EXPECT_EQ(windowed.state_formula_bytes, full.state_formula_bytes * 256 / 8192);
  EXPECT_LT(windowed.state_bytes, full.state_bytes / 4);
}

TEST(Cost, GrowsWithTheRowsOfAStep) {
  const Cost small = cost(TinyCheckpoint::llama(1), {.step_rows = 16, .logit_rows = 0});
  const Cost large = cost(TinyCheckpoint::llama(1), {.step_rows = 64, .logit_rows = 0});
  EXPECT_EQ(large.scratch_bytes, 4 * small.scratch_bytes);
  const Cost logits = cost(TinyCheckpoint::llama(1), {.step_rows = 16, .logit_rows = 2});
  EXPECT_EQ(logits.scratch_bytes, small.scratch_bytes + 2 * 512 * 4);
}

TEST(Cost, RefusesAViewBeyondItsTensor) {
  const TinyCheckpoint tiny = TinyCheckpoint::llama(1);
  Plan plan = make_plan(tiny, {});
  std::get<Gqa>(plan.layers[0].sites[0].mixer).query.weight.view = View::rows(1, 65);
  try {
    cost_of(plan, tiny, {});
    FAIL() << "the view was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("blk.0.attn_q.weight"), std::string::npos);
  }
}

}  // namespace
}  // namespace lemma::model
