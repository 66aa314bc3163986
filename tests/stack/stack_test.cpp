// SPDX-License-Identifier: Apache-2.0
// All token mixers, feed-forwards and residual styles together: the cpu agrees with the reference
// at every site, and the bits are the same however the tokens are cut at the lengths where some
// layer's state turns a corner, whoever runs beside them and on however many threads.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "eval/check.hpp"
#include "lemma/error.hpp"
#include "model_runs.hpp"
#include "stack_model.hpp"
#include "test_data.hpp"

namespace lemma::test {
namespace {

using weights::Format;

const char* name_of(Wiring wiring) {
  static constexpr const char* kNames[] = {"plain", "streams", "blocks"};
  return kNames[static_cast<std::size_t>(wiring)];
}

ModelUnderTest open_stack(Wiring wiring, const RunOptions& options, Format format = Format::kF32) {
  StackModel stack = make_stack(wiring, format);
  return under_test(runtime::LoadedModel::assemble(std::move(stack.weights), std::move(stack.plan),
                                                   load_options(options)),
                    options);
}

struct Case {
  Wiring wiring;
  BackendKind backend;
};
std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return std::string(name_of(info.param.wiring)) +
         (info.param.backend == BackendKind::kCpu ? "_cpu" : "_reference");
}
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Wiring wiring : {Wiring::kPlain, Wiring::kThreeStreams, Wiring::kBlocksOfTwo})
    for (const BackendKind backend : {BackendKind::kReference, BackendKind::kCpu})
      all.push_back({wiring, backend});
  return all;
}

class Stack : public ::testing::TestWithParam<Case> {
 protected:
  ModelUnderTest open(RunOptions options = {}, Format format = Format::kF32) const {
    options.backend = GetParam().backend;
    return open_stack(GetParam().wiring, options, format);
  }
  std::string difference(std::span<const float> expected, std::span<const float> found) const {
    return bit_difference(expected, found, kStackVocabulary);
  }
  const std::vector<std::int32_t> tokens_ = stack_tokens();
};
INSTANTIATE_TEST_SUITE_P(All, Stack, ::testing::ValuesIn(cases()), case_name);

// NewPrefill of every boundary length, and of every boundary before it with the rest appended. A
// cut's first step is the NewPrefill of that length, so the whole text covers the former; shorter
// texts, whose last steps have other numbers of rows, are swept in ./check --deep.
TEST_P(Stack, HasTheSameBitsCutAtEveryBoundary) {
  ModelUnderTest run = open();
  const std::vector<float> whole = evaluate(run, tokens_);
  const std::vector<std::uint32_t> lengths = stack_boundaries();
  for (const std::uint32_t length : lengths) {
    if (length != tokens_.size() && !deep()) continue;
    const std::span<const std::int32_t> text = std::span(tokens_).first(length);
    const std::span<const float> expected =
        std::span(whole).first(std::size_t{length} * kStackVocabulary);
    ASSERT_EQ(difference(expected, evaluate(run, text)), "") << "of " << length;
    for (const std::uint32_t cut : lengths) {
      if (cut >= length) break;
      ASSERT_EQ(difference(expected, evaluate(run, text, {.cuts = {cut}})), "")
          << "cut before " << cut << " of " << length;
    }
  }
}

TEST_P(Stack, HasTheSameBitsTokenByToken) {
  ModelUnderTest run = open();
  const std::vector<float> whole = evaluate(run, tokens_);
  EXPECT_EQ(difference(whole, evaluate(run, tokens_, {.stepwise = true})), "");
  // NewPrefill of one token and decoded tokens from there: F32 weights know no class.
  EXPECT_EQ(difference(whole, evaluate(run, tokens_, {.stepwise = true, .generated_from = 1})), "");
  EXPECT_EQ(difference(whole, evaluate(run, tokens_, {.cuts = {1, 17, 64}})), "");
}

TEST_P(Stack, HasTheSameBitsAfterRejectedDrafts) {
  ModelUnderTest run = open();
  const std::vector<float> whole = evaluate(run, tokens_);
  std::vector<std::uint32_t> lengths = stack_boundaries();
  std::erase_if(lengths, [](std::uint32_t length) { return length + 2 > kStackContext; });
  EXPECT_EQ(difference(whole, evaluate_with_drafts(run, tokens_, lengths)), "");
  if (!deep()) return;
  for (const std::uint32_t length : lengths)
    ASSERT_EQ(difference(whole, evaluate_with_drafts(run, tokens_, {{length}})), "") << length;
}

TEST_P(Stack, HasTheSameBitsWithAnyPageSize) {
  ModelUnderTest small = open({.page_size = 16}), large = open({.page_size = 256});
  EXPECT_EQ(difference(evaluate(small, tokens_), evaluate(large, tokens_)), "");
}

TEST_P(Stack, HasTheSameBitsBesideOthers) {
  ModelUnderTest run = open({.threads = 2, .sequences = 3});
  const std::vector<float> alone = evaluate(run, tokens_);
  for (const auto& rows : evaluate_together(run, tokens_)) EXPECT_EQ(difference(alone, rows), "");
}

TEST_P(Stack, HasTheSameBitsInEveryStateFormatHoweverItIsCut) {
  if (GetParam().backend == BackendKind::kReference && GetParam().wiring != Wiring::kPlain &&
      !deep())
    return;  // the wiring holds no state
  for (const auto format :
       {algorithm::RowFormat::kF16, algorithm::RowFormat::kBF16, algorithm::RowFormat::kQ8}) {
    ModelUnderTest run = open({.threads = 2, .format = format});
    const std::vector<float> whole = evaluate(run, tokens_);
    EXPECT_EQ(difference(whole, evaluate(run, tokens_, {.cuts = {3, 17, 64, 137}})), "")
        << algorithm::to_string(format);
  }
}

TEST_P(Stack, RefusesATextThatIsLongerThanItsContext) {
  ModelUnderTest run = open();
  std::vector<std::int32_t> tokens = tokens_;
  tokens.push_back(1);
  EXPECT_THROW(evaluate(run, tokens), Error);
  EXPECT_THROW(evaluate(run, tokens, {.cuts = {kStackContext}}), Error);
  state::Sequence sequence(run.space->pool());
  const auto append = [&](std::span<const std::int32_t> ids) {
    runtime::evaluate(*run.model, *run.space, sequence, ids, {}, {});
  };
  append(tokens_);
  EXPECT_THROW(append({{1}}), Error);
  EXPECT_EQ(sequence.length(), kStackContext);
}

TEST_P(Stack, RunsEveryOperationOnItsOwnBackend) {
  ModelUnderTest run = open();
  const bool cpu = GetParam().backend == BackendKind::kCpu;
  std::set<std::string> operations;
  for (const backend::Placement& placement : run.space->executable().placements()) {
    operations.insert(placement.operation);
    EXPECT_EQ(placement.implementation.starts_with("cpu"), cpu)
        << placement.operation << " at " << placement.site << " runs on "
        << placement.implementation;
  }
  for (const char* operation : {"attend", "attend latent", "attend compressed", "select",
                                "compress", "recur", "mlp", "route", "experts", "gate"})
    EXPECT_TRUE(operations.contains(operation)) << operation;
}

class StackOnCpu : public ::testing::TestWithParam<Wiring> {};
std::string wiring_name(const ::testing::TestParamInfo<Wiring>& wiring) {
  return name_of(wiring.param);
}
INSTANTIATE_TEST_SUITE_P(All, StackOnCpu,
                         ::testing::Values(Wiring::kPlain, Wiring::kThreeStreams,
                                           Wiring::kBlocksOfTwo),
                         wiring_name);

eval::ModelRun model_run(Wiring wiring, BackendKind backend, float scores = 1.f,
                         Format format = Format::kF32) {
  StackModel stack = make_stack(wiring, format);
  scale_scores(stack.plan, scores);
  return eval::ModelRun(runtime::LoadedModel::assemble(
      std::move(stack.weights), std::move(stack.plan), load_options({.backend = backend})));
}

TEST_P(StackOnCpu, AgreesWithTheReferenceAtEverySite) {
  const std::vector<std::int32_t> tokens = stack_tokens();
  for (const bool forced : {false, true}) {
    eval::ModelRun reference = model_run(GetParam(), BackendKind::kReference);
    eval::ModelRun cpu = model_run(GetParam(), BackendKind::kCpu);
    const eval::CheckReport report =
        eval::check(reference, cpu, tokens, {.teacher_forced = forced, .generated_from = 100});
    const auto worst = std::max_element(
        report.sites.begin(), report.sites.end(),
        [](const auto& a, const auto& b) { return a.of_tolerance() < b.of_tolerance(); });
    std::printf(
        "[ measured ] stack, %-7s %-13s uses most of its tolerance at %s: %.3f; logits %.2e\n",
        name_of(GetParam()), forced ? "equal inputs:" : "own rows:", worst->site.name.c_str(),
        worst->of_tolerance(), report.sites.back().distance.max_error());
    EXPECT_EQ(report.first_failed ? report.sites[*report.first_failed].site.name : "", "");
    EXPECT_EQ(report.logits.same_best(), tokens.size());
  }
}

TEST_P(StackOnCpu, HasTheSameBitsOnAnyNumberOfThreads) {
  const std::vector<std::int32_t> tokens = stack_tokens();
  ModelUnderTest one = open_stack(GetParam(), {.threads = 1});
  const std::vector<float> whole = evaluate(one, tokens);
  for (const int threads : {2, 3}) {
    ModelUnderTest more = open_stack(GetParam(), {.threads = threads});
    EXPECT_EQ(bit_difference(whole, evaluate(more, tokens), kStackVocabulary), "") << threads;
    EXPECT_EQ(bit_difference(whole, evaluate(more, tokens, {.stepwise = true}), kStackVocabulary),
              "")
        << threads;
  }
}

// On equal inputs, since a choice on rounded ones may fall otherwise.
TEST_P(StackOnCpu, AgreesWithTheReferenceOnQuantizedWeights) {
  eval::ModelRun reference = model_run(GetParam(), BackendKind::kReference, 1.f, Format::kQ8_0);
  eval::ModelRun cpu = model_run(GetParam(), BackendKind::kCpu, 1.f, Format::kQ8_0);
  const eval::CheckReport report =
      eval::check(reference, cpu, stack_tokens(),
                  {.teacher_forced = true, .int8 = true, .generated_from = 100});
  for (const eval::SiteReport& site : report.sites)
    EXPECT_TRUE(site.passed()) << site.site.name << ", " << site.site.operation << ": "
                               << site.of_tolerance() << " of its tolerance, error "
                               << site.distance.max_error();
}

// A score of 500 moves a weight ten times as far by its rounding as one of 50 does.
TEST(StackTolerances, HoldWhereScoresAreLarge) {
  eval::ModelRun reference = model_run(Wiring::kPlain, BackendKind::kReference, 300.f);
  eval::ModelRun cpu = model_run(Wiring::kPlain, BackendKind::kCpu, 300.f);
  const eval::CheckReport report =
      eval::check(reference, cpu, stack_tokens(), {.teacher_forced = true});
  for (const eval::SiteReport& site : report.sites)
    if (site.site.operation.starts_with("attend"))
      std::printf("[ measured ] large scores, %s: error %.1e, %.3f of allowed\n",
                  site.site.name.c_str(), site.distance.max_error(), site.of_tolerance());
  EXPECT_EQ(report.first_failed ? report.sites[*report.first_failed].site.name : "", "");
}

// Where weights are quantized, entered and generated tokens may have their own arithmetic; within
// it nothing else changes a bit.
TEST_P(StackOnCpu, HasTheSameBitsWithQuantizedWeightsHoweverItIsCut) {
  ModelUnderTest run = open_stack(GetParam(), {.threads = 2}, Format::kQ8_0);
  const std::vector<std::int32_t> tokens = stack_tokens();
  const auto same = [&](std::span<const float> a, std::span<const float> b) {
    return bit_difference(a, b, kStackVocabulary);
  };
  const std::vector<float> entered = evaluate(run, tokens);
  const std::vector<float> generated = evaluate(run, tokens, {.generated_from = 60});
  EXPECT_EQ(same(entered, evaluate(run, tokens, {.stepwise = true})), "");
  EXPECT_EQ(same(generated, evaluate(run, tokens, {.stepwise = true, .generated_from = 60})), "");
  for (const std::uint32_t cut : {3u, 17u, 64u, 137u}) {
    EXPECT_EQ(same(entered, evaluate(run, tokens, {.cuts = {cut}})), "") << cut;
    EXPECT_EQ(same(generated, evaluate(run, tokens, {.cuts = {cut}, .generated_from = 60})), "")
        << cut;
  }
}

TEST(StackModels, DifferByTheirWiring) {
  std::vector<std::vector<float>> logits;
  for (const Wiring wiring : {Wiring::kPlain, Wiring::kThreeStreams, Wiring::kBlocksOfTwo}) {
    ModelUnderTest run = open_stack(wiring, {});
    logits.push_back(evaluate(run, stack_tokens()));
    for (std::size_t i = 0; i + 1 < logits.size(); ++i)
      EXPECT_GT(largest_difference(logits[i], logits.back()), 0.1);
  }
}

TEST(StackModels, AreRefusedWithATableOfExpertsThatThereAreNot) {
  StackModel stack = make_stack(Wiring::kPlain);
  const weights::WeightRef wrong = stack.weights->table("wrong", kStackVocabulary, 2, 9);
  for (model::Layer& layer : stack.plan.layers)
    if (auto* moe = std::get_if<model::Moe>(&layer.sites[1].mixer); moe && moe->hash_table)
      moe->hash_table = wrong;
  try {
    runtime::LoadedModel::assemble(std::move(stack.weights), std::move(stack.plan),
                                   load_options({}));
    FAIL() << "the model was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadFile);
    EXPECT_NE(std::string(error.what()).find("'wrong'"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("token "), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lemma::test
