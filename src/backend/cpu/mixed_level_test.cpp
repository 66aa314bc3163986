// SPDX-License-Identifier: Apache-2.0
// The level that is chosen unasked where bf16 is fast: it has the kernels of two others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/cpu/conformance.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/reference/reference_backend.hpp"

namespace lemma::cpu {
namespace {

using namespace backend::conformance;
using backend::Numerics;
using weights::Format;

class MixedLevel : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<base::Isa> levels = base::available_isas(base::cpu_features());
    if (std::find(levels.begin(), levels.end(), base::Isa::kAvx512Mixed) == levels.end())
      GTEST_SKIP() << "this processor has no vdpbf16ps";
  }
  static Outcome run(const Case& c, base::Isa isa, Numerics numerics = Numerics::kFast) {
    RunOptions options{.schedule = one_prefill(20)};
    options.schedule.push_back({{.rows = 3, .token_class = state::TokenClass::kGenerated}});
    return run_case(*make_backend({.threads = 1, .isa = isa, .numerics = numerics}), c, options);
  }
};

TEST_F(MixedLevel, RoundsEnteredRowsOfBf16WeightsAlone) {
  for (const Format format : {Format::kF16, Format::kBF16, Format::kQ8_0}) {
    const Case c = decoder_case(format);
    const bool bf16 = format == Format::kBF16;
    const base::Isa same = bf16 ? base::Isa::kAvx512Bf16 : base::Isa::kAvx512;
    EXPECT_TRUE(same_bits(run(c, base::Isa::kAvx512Mixed).rows, run(c, same).rows)) << c.name;
  }
}

TEST_F(MixedLevel, SaysWhatItRounds) {
  const auto words = [](Format format, Numerics numerics) {
    const Case c = project_case(format, 64, false, 0.f);
    return run(c, base::Isa::kAvx512Mixed, numerics).placements.back().implementation;
  };
  EXPECT_THAT(words(Format::kBF16, Numerics::kFast),
              ::testing::HasSubstr("bf16 x bf16 entered, x f32 generated"));
  EXPECT_THAT(words(Format::kBF16, Numerics::kStrict), ::testing::HasSubstr("bf16 x f32"));
  EXPECT_THAT(words(Format::kF16, Numerics::kFast), ::testing::HasSubstr("f16 x f32"));
}

TEST_F(MixedLevel, ComputesBf16WeightsInF32UnderStrictNumerics) {
  const Case c = decoder_case(Format::kBF16);
  EXPECT_TRUE(same_bits(run(c, base::Isa::kAvx512Mixed, Numerics::kStrict).rows,
                        run(c, base::Isa::kAvx512, Numerics::kStrict).rows));
}

// A choice of experts does not hang on rows that were rounded.
TEST_F(MixedLevel, LeavesARoutersProductsInF32) {
  CaseBuilder b("router", 77);
  const backend::Tensor logits = b.project(b.embed(96), 8, Format::kBF16);
  backend::Route route;
  route.spec.experts = 8;
  route.spec.chosen = 2;
  route.logits = logits;
  route.ids = b.tensor(2);
  route.weights = b.tensor(2);
  b.add(route);
  const Case c = b.finish(logits, {});
  const Outcome mixed = run(c, base::Isa::kAvx512Mixed);
  EXPECT_TRUE(same_bits(mixed.rows, run(c, base::Isa::kAvx512).rows));
  EXPECT_THAT(mixed.placements[1].implementation, ::testing::HasSubstr("bf16 x f32"));
}

}  // namespace
}  // namespace lemma::cpu
