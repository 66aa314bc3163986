// SPDX-License-Identifier: Apache-2.0
// The backend on the level `amx`, on any machine: entered rows on tiles in plain C++. Kernels are
// tested in kernels/project_test.cpp; here, whether every executor hands them rounded rows.
#include <gtest/gtest.h>

#include <vector>

#include "backend/cpu/conformance.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/kernels/select.hpp"
#include "backend/cpu/kernels/tiles_emulated.hpp"
#include "backend/reference/reference_backend.hpp"

namespace lemma::cpu {
namespace {

using namespace backend::conformance;
using algorithm::Activation;
using weights::Format;

constexpr std::uint32_t kEntered = 37;

const KernelTable& on_tiles() {
  static constexpr EnteredKernels kEntering =
      tile_kernels<EmulatedTiles, kScalarKernels>("amx emulated");
  static const KernelTable table = with_entered(kScalarKernels, kEntering);
  return table;
}

std::vector<Case> tile_cases() {
  std::vector<Case> cases;
  for (const Format format : {Format::kQ8_0, Format::kQ4_K, Format::kF16}) {
    cases.push_back(project_case(format, 512, true, 0.f));
    cases.push_back(mlp_case(Activation::kSilu, true, format));
    cases.push_back(head_case(format, 0.f));
  }
  for (auto* family : {attention_family_cases, expert_family_cases, recurrent_family_cases,
                       residual_family_cases}) {
    for (Case& c : family()) cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<float> rows_on_tiles(const Case& c, const Schedule& schedule, int threads) {
  const auto backend = make_backend({.threads = threads, .kernels = &on_tiles()});
  return run_case(*backend, c, {.schedule = schedule}).rows;
}

TEST(TilesBackend, AgreesWithTheReferenceAndGivesARowTheSameBitsInAnyCompany) {
  for (const Case& c : tile_cases()) {
    const RunOptions run{.schedule = one_prefill(kEntered)};
    const std::vector<float> want = run_case(*reference::make_backend(), c, run).rows;
    const std::vector<float> got = rows_on_tiles(c, run.schedule, 1);
    EXPECT_EQ("", compare(got, want, want.size() / kEntered, bound(c, true))) << c.name;
    if (c.program.whole_prompts) continue;
    EXPECT_TRUE(same_bits(got, rows_on_tiles(c, chunks(kEntered, {17, 3, 1}), 3))) << c.name;
    EXPECT_TRUE(same_bits(got, rows_on_tiles(c, in_company(kEntered, {5, 1, 9}), 1))) << c.name;
  }
}

}  // namespace
}  // namespace lemma::cpu
