// SPDX-License-Identifier: Apache-2.0
// Experts of which a step's rows take more scratch than there shall be: slices of rows, whose cuts
// do not show. (What experts compute is the conformance suite's.)
#include <gtest/gtest.h>

#include <vector>

#include "backend/cpu/conformance.hpp"
#include "backend/cpu/cpu_backend.hpp"

namespace lemma::cpu {
namespace {

using namespace backend::conformance;
using backend::WeightUse;
using weights::Format;

/// Narrow and very wide: a row and its three experts take half a MiB.
Case wide_experts() {
  constexpr std::uint32_t kExperts = 5, kChosen = 3, kWidth = 8, kHidden = 44'000;
  CaseBuilder b("wide experts", 7);
  backend::Route route;
  route.spec = {.experts = kExperts, .chosen = kChosen};
  route.logits = b.embed(kExperts, 2.f);
  route.ids = b.tensor(kChosen);
  route.weights = b.tensor(kChosen);
  b.add(route);
  backend::Experts op;
  op.spec = {{}, false, kWidth, kHidden};
  op.experts = kExperts;
  op.up = b.weight(Format::kF32, kExperts * kHidden, kWidth, WeightUse::kMatrix);
  op.down = b.weight(Format::kF32, kExperts * kWidth, kHidden, WeightUse::kMatrix, 0.01f);
  op.in = b.embed(kWidth);
  op.ids = route.ids;
  op.weights = route.weights;
  op.out = b.tensor(kWidth);
  b.add(op);
  return b.finish(op.out, {});
}

TEST(Experts, GiveTheSameBitsInSlicesOfRows) {
  const Case c = wide_experts();
  const auto rows = [&](const Schedule& schedule) {
    return run_case(*make_backend({.threads = 2}), c, {.schedule = schedule}).rows;
  };
  const std::vector<float> one_by_one = rows(chunks(100, {1}));
  EXPECT_EQ(rows(one_prefill(100)), one_by_one);
  EXPECT_EQ(rows(chunks(100, {65, 3})), one_by_one);
}

TEST(Experts, TakeNoMoreScratchForMoreRows) {
  const Case c = wide_experts();
  const auto scratch = [&](std::uint32_t max_rows) {
    std::size_t bytes = 0;
    run_case(*make_backend({.threads = 1}), c,
             {.schedule = one_prefill(1),
              .max_rows = max_rows,
              .look = [&](const backend::Executable& executable, bool) {
                bytes = executable.scratch_bytes();
              }});
    return bytes;
  };
  EXPECT_LT(scratch(512), scratch(64) + (std::size_t{1} << 20));
}

}  // namespace
}  // namespace lemma::cpu
