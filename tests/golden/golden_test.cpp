// SPDX-License-Identifier: Apache-2.0
// Every golden variant on both backends: the logits of an independent engine, and the same bits
// however the tokens are cut, whoever runs beside them and on however many threads.
#include "golden_models.hpp"

#include <cstdio>

#include "test_data.hpp"

namespace lemma::test {
namespace {

struct Case {
  std::string variant;
  BackendKind backend;
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.variant;
  for (char& c : name)
    if (c == '-') c = '_';
  return name + (info.param.backend == BackendKind::kCpu ? "_cpu" : "_reference");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const BackendKind backend : {BackendKind::kReference, BackendKind::kCpu})
    for (const std::string& variant : golden_variants()) all.push_back({variant, backend});
  return all;
}

class GoldenModel : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    LEMMA_TEST_DATA_OR_SKIP(folder, "goldens/" + GetParam().variant);
    golden_ = read_golden(folder);
  }
  GoldenRun open(GoldenOptions options = {}) const {
    options.backend = GetParam().backend;
    return open_golden(golden_.model, options);
  }
  std::size_t vocabulary() const { return golden_.logits.size() / golden_.tokens.size(); }

  Golden golden_;
};

INSTANTIATE_TEST_SUITE_P(All, GoldenModel, ::testing::ValuesIn(cases()), name_of);

TEST_P(GoldenModel, AgreesWithAnIndependentEngine) {
  GoldenRun run = open();
  const double difference = largest_difference(golden_.logits, evaluate(run, golden_.tokens));
  std::printf(
      "[ measured ] %-28s %-9s max |difference| %.2e of %.0e allowed\n", GetParam().variant.c_str(),
      GetParam().backend == BackendKind::kCpu ? "cpu" : "reference", difference, golden_.tolerance);
  EXPECT_LE(difference, golden_.tolerance);
}

TEST_P(GoldenModel, HasTheSameBitsCutAnywhere) {
  GoldenRun run = open();
  const std::vector<float> whole = evaluate(run, golden_.tokens);
  const auto tokens = static_cast<std::uint32_t>(golden_.tokens.size());
  for (std::uint32_t cut = 1; cut < tokens; ++cut)
    ASSERT_EQ(bit_difference(whole, evaluate(run, golden_.tokens, {.cuts = {cut}}), vocabulary()),
              "")
        << "cut before " << cut;
  ASSERT_EQ(
      bit_difference(whole, evaluate(run, golden_.tokens, {.cuts = {7, 8, 20, 33}}), vocabulary()),
      "");
}

TEST_P(GoldenModel, HasTheSameBitsTokenByToken) {
  GoldenRun run = open();
  const std::vector<float> whole = evaluate(run, golden_.tokens);
  EXPECT_EQ(bit_difference(whole, evaluate(run, golden_.tokens, {.stepwise = true}), vocabulary()),
            "");
  // F32 weights have one definition for entered and generated tokens.
  EXPECT_EQ(
      bit_difference(whole, evaluate(run, golden_.tokens, {.generated_from = 20}), vocabulary()),
      "");
}

TEST_P(GoldenModel, HasTheSameBitsWithAnyPageSize) {
  GoldenRun small = open({.page_size = 4}), large = open({.page_size = 256});
  EXPECT_EQ(bit_difference(evaluate(small, golden_.tokens), evaluate(large, golden_.tokens),
                           vocabulary()),
            "");
}

TEST_P(GoldenModel, HasTheSameBitsOnAnyNumberOfThreads) {
  GoldenRun one = open({.threads = 1});
  const std::vector<float> whole = evaluate(one, golden_.tokens);
  for (const int threads : {2, 3}) {
    GoldenRun more = open({.threads = threads});
    EXPECT_EQ(bit_difference(whole, evaluate(more, golden_.tokens), vocabulary()), "") << threads;
    EXPECT_EQ(
        bit_difference(whole, evaluate(more, golden_.tokens, {.stepwise = true}), vocabulary()), "")
        << threads;
  }
}

// Three sequences, each at another place of the same tokens in other cuts, in shared steps.
TEST_P(GoldenModel, HasTheSameBitsBesideOthers) {
  GoldenRun run = open({.threads = 2, .sequences = 3});
  const std::vector<float> alone = evaluate(run, golden_.tokens);
  const std::span<const std::int32_t> tokens = golden_.tokens;
  constexpr std::size_t kRows[3] = {1, 5, 11};
  std::vector<state::Sequence> sequences;
  for (int s = 0; s < 3; ++s) sequences.emplace_back(run.space->pool());
  runtime::StepRunner runner(*run.model, *run.space);
  std::vector<float> together[3];
  for (bool busy = true; busy;) {
    std::vector<runtime::StepPart> parts;
    std::vector<std::size_t> owners;
    for (std::size_t s = 0; s < 3; ++s) {
      const std::size_t done = sequences[s].length();
      const std::size_t rows = std::min(kRows[s], tokens.size() - done);
      if (rows == 0) continue;
      parts.push_back({&sequences[s], tokens.subspan(done, rows), state::TokenClass::kEntered,
                       runtime::StepPart::Logits::kAll});
      owners.push_back(s);
    }
    busy = !parts.empty();
    if (!busy) break;
    runner.run(parts);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      runner.check(p);
      for (std::size_t r = 0; r < parts[p].tokens.size(); ++r) {
        const auto logits = runner.logits(p, r);
        together[owners[p]].insert(together[owners[p]].end(), logits.begin(), logits.end());
      }
    }
  }
  for (const auto& rows : together) EXPECT_EQ(bit_difference(alone, rows, vocabulary()), "");
}

TEST_P(GoldenModel, RunsEveryOperationOnItsOwnBackend) {
  GoldenRun run = open();
  const bool cpu = GetParam().backend == BackendKind::kCpu;
  const auto placements = run.space->executable().placements();
  ASSERT_FALSE(placements.empty());
  for (const backend::Placement& placement : placements)
    EXPECT_EQ(placement.implementation.starts_with("cpu"), cpu)
        << placement.operation << " at " << placement.site << " runs on "
        << placement.implementation;
}

}  // namespace
}  // namespace lemma::test
