// SPDX-License-Identifier: Apache-2.0
// The level avx512 as a backend: which products take entered rows in whole numbers, and which stay
// exact. Kernels are tested in kernels/project_whole_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/cpu/conformance.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/kernels/select.hpp"
#include "backend/reference/reference_backend.hpp"

namespace lemma::cpu {
namespace {

using namespace backend::conformance;
using backend::Numerics;
using weights::Format;

constexpr Format kFloats16[] = {Format::kF16, Format::kBF16};

class WholeRows : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<base::Isa> levels = base::available_isas(base::cpu_features());
    if (std::find(levels.begin(), levels.end(), base::Isa::kAvx512) == levels.end())
      GTEST_SKIP() << "this processor has no AVX-512";
  }
  static Outcome run(const Case& c, Numerics numerics = Numerics::kFast, int threads = 1,
                     state::TokenClass token_class = state::TokenClass::kEntered) {
    const auto backend =
        make_backend({.threads = threads, .isa = base::Isa::kAvx512, .numerics = numerics});
    return run_case(*backend, c, {.schedule = {{Part{0, 20, token_class}}}});
  }
};

TEST_F(WholeRows, SayWhatIsRounded) {
  for (const Format format : kFloats16) {
    const Case c = project_case(format, 64, false, 0.f);
    const std::string name = format == Format::kF16 ? "f16" : "bf16";
    EXPECT_THAT(run(c).placements.back().implementation,
                ::testing::HasSubstr(name + " x int13 entered, x f32 generated"));
    EXPECT_THAT(run(c, Numerics::kStrict).placements.back().implementation,
                ::testing::HasSubstr(name + " x f32"));
  }
}

TEST_F(WholeRows, AreNearTheReferenceAndNotEqualToF32) {
  for (const Format format : kFloats16) {
    for (const Case& c : {project_case(format, 320, true, 0.f),
                          mlp_case(algorithm::Activation::kSilu, true, format)}) {
      const std::vector<float> want =
          run_case(*reference::make_backend(), c, {.schedule = one_prefill(20)}).rows;
      const std::vector<float> got = run(c).rows;
      EXPECT_EQ("", compare(got, want, want.size() / 20, bound(c, EnteredRows::kWhole))) << c.name;
      EXPECT_FALSE(same_bits(got, run(c, Numerics::kStrict).rows)) << c.name;
      EXPECT_TRUE(same_bits(got, run(c, Numerics::kFast, 3).rows)) << c.name;
    }
  }
}

TEST_F(WholeRows, LeaveGeneratedRowsExact) {
  for (const Format format : kFloats16) {
    const Case c = decoder_case(format);
    const auto generated = state::TokenClass::kGenerated;
    EXPECT_TRUE(same_bits(run(c, Numerics::kFast, 1, generated).rows,
                          run(c, Numerics::kStrict, 1, generated).rows))
        << c.name;
  }
}

// A choice of experts does not hang on rows that were rounded.
TEST_F(WholeRows, LeaveARoutersProductsInF32) {
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
  const Outcome fast = run(c);
  EXPECT_TRUE(same_bits(fast.rows, run(c, Numerics::kStrict).rows));
  EXPECT_THAT(fast.placements[1].implementation, ::testing::HasSubstr("bf16 x f32"));
}

}  // namespace
}  // namespace lemma::cpu
