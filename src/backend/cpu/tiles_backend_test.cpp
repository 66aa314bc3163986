// SPDX-License-Identifier: Apache-2.0
// The backend on the levels `amx` and `amxint8`, on any machine: on tiles in plain C++. Kernels are
// tested in kernels/project_test.cpp and kernels/int8_tiles_test.cpp; here, whether every executor
// hands those of `amx` rounded rows, and whether those of `amxint8` change no bit of any.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "backend/cpu/conformance.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/kernels/select.hpp"
#include "backend/cpu/kernels/tiles_emulated.hpp"
#include "backend/cpu/packing.hpp"
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

/// The MLP and head in some formats, and every family.
void add_blocks(std::initializer_list<Format> formats, std::vector<Case>& cases) {
  for (const Format format : formats) {
    cases.push_back(mlp_case(Activation::kSilu, true, format));
    cases.push_back(head_case(format, 0.f));
  }
  for (auto* family : {attention_family_cases, expert_family_cases, recurrent_family_cases,
                       residual_family_cases}) {
    for (Case& c : family()) cases.push_back(std::move(c));
  }
}

std::vector<Case> tile_cases() {
  const std::initializer_list<Format> formats = {Format::kQ8_0, Format::kQ4_K, Format::kF16};
  std::vector<Case> cases;
  for (const Format format : formats) cases.push_back(project_case(format, 512, true, 0.f));
  add_blocks(formats, cases);
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
    EXPECT_EQ("", compare(got, want, want.size() / kEntered, bound(c, EnteredRows::kBf16)))
        << c.name;
    if (c.program.whole_prompts) continue;
    EXPECT_TRUE(same_bits(got, rows_on_tiles(c, chunks(kEntered, {17, 3, 1}), 3))) << c.name;
    EXPECT_TRUE(same_bits(got, rows_on_tiles(c, in_company(kEntered, {5, 1, 9}), 1))) << c.name;
  }
}

#if defined(__x86_64__)
std::vector<Case> int8_cases() {
  std::vector<Case> cases;
  for (const Format format : weights::kFormats) {
    if (takes_int8(kernel_of(format))) cases.push_back(project_case(format, 512, true, 0.f));
  }
  add_blocks({Format::kQ8_0, Format::kQ4_K, Format::kQ6_K, Format::kQ2_K}, cases);
  return cases;
}

TEST(TilesBackend, GivesTheBitsOfAvx512OnTilesOfBytes) {
  const std::vector<base::Isa> isas = base::tested_isas();
  if (std::find(isas.begin(), isas.end(), base::Isa::kAvx512) == isas.end()) {
    GTEST_SKIP() << "the vectors beside the tiles are of AVX-512";
  }
  const KernelTable& below = kernels(base::Isa::kAvx512);
  const KernelTable tiles = with_int8(below, kEmulatedTilesKernels);
  const auto rows = [](const Case& c, const KernelTable& table, const Schedule& schedule,
                       int threads) {
    const auto backend = make_backend({.threads = threads, .kernels = &table});
    return run_case(*backend, c, {.schedule = schedule}).rows;
  };
  constexpr std::uint32_t kMany = 101;  // so that experts, too, have 16 rows
  const Schedule generated = {{Part{0, 20}}, {Part{0, 21, state::TokenClass::kGenerated}}};
  for (const Case& c : int8_cases()) {
    EXPECT_TRUE(
        same_bits(rows(c, below, one_prefill(kMany), 1), rows(c, tiles, one_prefill(kMany), 2)))
        << c.name;
    if (c.program.whole_prompts) continue;
    EXPECT_TRUE(same_bits(rows(c, below, generated, 1), rows(c, tiles, generated, 2))) << c.name;
  }
}
#endif

}  // namespace
}  // namespace lemma::cpu
