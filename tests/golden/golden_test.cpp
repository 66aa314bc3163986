// SPDX-License-Identifier: Apache-2.0
// Every golden variant on both backends: the logits of an independent engine, and the same bits
// however the tokens are cut, whoever runs beside them and on however many threads.
#include "golden_models.hpp"

#include <cstdio>
#include <numeric>
#include <set>
#include <string>

#include "lemma/error.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

struct Case {
  std::string variant;
  bool own;  ///< one of tests/goldens, else of the shared data
  BackendKind backend;
};

std::string printed(const Case& golden) {
  return (golden.own ? "own-" : "") + golden.variant;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = printed(info.param);
  for (char& c : name)
    if (c == '-') c = '_';
  return name + (info.param.backend == BackendKind::kCpu ? "_cpu" : "_reference");
}

std::vector<Case> cases(bool own) {
  std::vector<std::string> variants;
  if (!own) variants = golden_variants();
  if (own)
    for (const auto& folder : own_goldens()) variants.push_back(folder.filename().string());
  std::vector<Case> all;
  for (const BackendKind backend : {BackendKind::kReference, BackendKind::kCpu})
    for (const std::string& variant : variants) all.push_back({variant, own, backend});
  return all;
}

/// Variants that the cpu is cut at every token of; together they hold every family of mixers.
bool is_cut_everywhere(const std::string& variant) {
  static const std::set<std::string> kChosen = {
      "gemma3",     "gemma4-sharedkv", "gpt-oss",        "mpt",
      "cohere2",    "deepseek4-csa",   "glm-dsa-shared", "deepseek4-hca-long",
      "minimax-m3", "qwen3next",       "kimi-linear",    "deepseek2-v3-mla"};
  return kChosen.contains(variant);
}

class GoldenModel : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().own) {
      golden_ = read_golden(source_dir() / "tests" / "goldens" / GetParam().variant);
      return;
    }
    LEMMA_TEST_DATA_OR_SKIP(folder, "goldens/" + GetParam().variant);
    golden_ = read_golden(folder);
  }
  GoldenRun open(GoldenOptions options = {}) const {
    options.backend = GetParam().backend;
    return open_golden(golden_.model, options);
  }
  std::size_t vocabulary() const { return golden_.logits.size() / golden_.tokens.size(); }

  /// Where the tokens are cut. A cut's first step is the prompt of that length alone.
  /// All places: the reference on the shared data, the cpu on its chosen variants and on this
  /// repository's own models, which are few; everybody in ./check --deep. Else three.
  std::vector<std::uint32_t> cuts() const {
    const auto tokens = static_cast<std::uint32_t>(golden_.tokens.size());
    const bool cpu = GetParam().backend == BackendKind::kCpu;
    const bool own = GetParam().own;
    if (!deep() && (cpu ? !own && !is_cut_everywhere(GetParam().variant) : own))
      return {1, 8, tokens - 1};
    std::vector<std::uint32_t> all(tokens - 1);
    std::iota(all.begin(), all.end(), 1u);
    // A long text is there for entries of 128 tokens: behind 48 cuts, those around their ends.
    if (!deep())
      std::erase_if(all, [](std::uint32_t cut) { return cut > 48 && (cut + 2) % 128 > 4; });
    return all;
  }

  Golden golden_;
};

INSTANTIATE_TEST_SUITE_P(All, GoldenModel, ::testing::ValuesIn(cases(false)), name_of);
INSTANTIATE_TEST_SUITE_P(Own, GoldenModel, ::testing::ValuesIn(cases(true)), name_of);

TEST(OwnGoldens, AreThere) {
  EXPECT_GE(own_goldens().size(), 20u);
}

TEST_P(GoldenModel, AgreesWithAnIndependentEngine) {
  GoldenRun run = open();
  const double difference = largest_difference(golden_.logits, evaluate(run, golden_.tokens));
  std::printf("[ measured ] %-28s %-9s max |difference| %.2e of %.0e allowed\n",
              printed(GetParam()).c_str(),
              GetParam().backend == BackendKind::kCpu ? "cpu" : "reference", difference,
              golden_.tolerance);
  EXPECT_LE(difference, golden_.tolerance);
}

TEST_P(GoldenModel, HasTheSameBitsCutAnywhere) {
  GoldenRun run = open();
  const std::vector<float> whole = evaluate(run, golden_.tokens);
  for (const std::uint32_t cut : cuts())
    ASSERT_EQ(bit_difference(whole, evaluate(run, golden_.tokens, {.cuts = {cut}}), vocabulary()),
              "")
        << "cut before " << cut;
  ASSERT_EQ(
      bit_difference(whole, evaluate(run, golden_.tokens, {.cuts = {7, 8, 20, 33}}), vocabulary()),
      "");
}

TEST_P(GoldenModel, HasTheSameBitsAfterRejectedDrafts) {
  GoldenRun run = open();
  const std::vector<float> whole = evaluate(run, golden_.tokens);
  for (const std::vector<std::uint32_t>& lengths :
       {std::vector<std::uint32_t>{1, 4, 7, 8, 9, 16, 33}, std::vector<std::uint32_t>{20}})
    EXPECT_EQ(
        bit_difference(whole, evaluate_with_drafts(run, golden_.tokens, lengths), vocabulary()),
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
  if (GetParam().backend == BackendKind::kReference) return;  // it has one
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

TEST_P(GoldenModel, HasTheSameBitsBesideOthers) {
  GoldenRun run = open({.threads = 2, .sequences = 3});
  const std::vector<float> alone = evaluate(run, golden_.tokens);
  for (const auto& rows : evaluate_together(run, golden_.tokens))
    EXPECT_EQ(bit_difference(alone, rows, vocabulary()), "");
}

TEST_P(GoldenModel, RefusesATextThatIsLongerThanItsContext) {
  GoldenRun run = open();
  const std::vector<std::int32_t> tokens(run.model->context() + 1, golden_.tokens[0]);
  EXPECT_THROW(evaluate(run, tokens), Error);
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
