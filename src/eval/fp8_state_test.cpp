// SPDX-License-Identifier: Apache-2.0
// Models whose state is held in fp8: both backends, all cuts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "eval/check.hpp"
#include "runtime/step_runner.hpp"
#include "test_data.hpp"

namespace lemma::eval {
namespace {

std::vector<std::int32_t> tokens_of(std::size_t n) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < n; ++i) tokens.push_back(std::int32_t((i * 37 + i * i) % 500));
  return tokens;
}

/// Logits [T, V] of one sequence, in steps of at most `step` tokens.
std::vector<float> logits(ModelRun& run, std::span<const std::int32_t> tokens, std::size_t step) {
  run.prepare({}, 64);
  state::Sequence sequence(run.space().pool());
  runtime::StepRunner runner(run.model(), run.space());
  std::vector<float> rows;
  for (std::size_t at = 0; at < tokens.size(); at += step) {
    const auto some = tokens.subspan(at, std::min(step, tokens.size() - at));
    const runtime::StepPart part{&sequence, some, state::TokenClass::kEntered,
                                 runtime::StepPart::Logits::kAll};
    runner.run({&part, 1});
    runner.check(0);
    for (std::size_t row = 0; row < some.size(); ++row) {
      const auto l = runner.logits(0, row);
      rows.insert(rows.end(), l.begin(), l.end());
    }
  }
  return rows;
}

class Fp8State : public testing::TestWithParam<const char*> {};

TEST_P(Fp8State, AgreesOnBothBackends) {
  LEMMA_TEST_DATA_OR_SKIP(model, std::string("goldens/") + GetParam() + "/model.gguf");
  ModelRun reference({.path = model, .backend = BackendKind::kReference, .kv = KvFormat::kFp8});
  ModelRun backend({.path = model, .threads = 2, .kv = KvFormat::kFp8});
  // Fed the reference's rows, each site is within the tolerance of its f32 arithmetic: both hold
  // the same codes.
  const CheckReport report =
      check(reference, backend, tokens_of(150), {.teacher_forced = true, .kv = KvFormat::kFp8});
  EXPECT_FALSE(report.first_failed)
      << report.sites[report.first_failed.value_or(0)].site.name << " "
      << report.sites[report.first_failed.value_or(0)].of_tolerance();
}

TEST_P(Fp8State, IsTheSameToTheBitHoweverTheTextIsCut) {
  LEMMA_TEST_DATA_OR_SKIP(model, std::string("goldens/") + GetParam() + "/model.gguf");
  const std::vector<std::int32_t> tokens = tokens_of(150);
  ModelRun run({.path = model, .threads = 2, .kv = KvFormat::kFp8});
  const std::vector<float> whole = logits(run, tokens, 64);
  for (const std::size_t step : {1u, 7u, 33u}) {
    const std::vector<float> cut = logits(run, tokens, step);
    ASSERT_EQ(cut.size(), whole.size());
    EXPECT_EQ(std::memcmp(cut.data(), whole.data(), whole.size() * sizeof(float)), 0) << step;
  }
}

TEST_P(Fp8State, IsCoarserThanF16AndNotByMuch) {
  LEMMA_TEST_DATA_OR_SKIP(model, std::string("goldens/") + GetParam() + "/model.gguf");
  const std::vector<std::int32_t> tokens = tokens_of(60);
  const auto distance = [&](KvFormat format) {
    ModelRun exact({.path = model, .threads = 1, .kv = KvFormat::kF32});
    ModelRun rounded({.path = model, .threads = 1, .kv = format});
    const std::vector<float> want = logits(exact, tokens, 64), got = logits(rounded, tokens, 64);
    const std::size_t vocabulary = want.size() / tokens.size();
    LogitsDistance kl;
    for (std::size_t at = 0; at < want.size(); at += vocabulary)
      kl.add(std::span(got).subspan(at, vocabulary), std::span(want).subspan(at, vocabulary));
    return kl.mean_kl();
  };
  const double f16 = distance(KvFormat::kF16), fp8 = distance(KvFormat::kFp8);
  EXPECT_GT(fp8, f16);
  EXPECT_LT(fp8, 0.05);
  std::cout << GetParam() << ": mean KL against an f32 state: f16 " << f16 << ", fp8 " << fp8
            << " nats\n";
}

INSTANTIATE_TEST_SUITE_P(DeepSeekV4, Fp8State,
                         testing::Values("deepseek4", "deepseek4-csa", "deepseek4-hca-long"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Fp8StateOfOthers, IsRefusedWhereTheArchitectureDefinesNone) {
  LEMMA_TEST_DATA_OR_SKIP(model, "goldens/llama-mha/model.gguf");
  ModelRun run({.path = model, .threads = 1, .kv = KvFormat::kFp8});
  try {
    run.prepare();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("defines no fp8 rows"), std::string::npos);
  }
}

}  // namespace
}  // namespace lemma::eval
