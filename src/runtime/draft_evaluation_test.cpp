// SPDX-License-Identifier: Apache-2.0
// Draft blocks against llama.cpp: tests/fixtures/data/drafts, made by
// tests/fixtures/make_drafts.py.
#include "runtime/draft_evaluation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "lemma/error.hpp"
#include "model/arch/arch.hpp"
#include "test_data.hpp"

namespace lemma::runtime {
namespace {

using Rows = std::vector<float>;

/// Largest difference of a logit; sums of f32 in another order. Logits deviate by 2; measured 1e-5.
constexpr float kTolerance = 5e-5f;

std::filesystem::path fixture(const std::string& file) {
  return test::source_dir() / "tests" / "fixtures" / "data" / "drafts" / file;
}

struct Recording {
  std::vector<std::int32_t> tokens;
  Rows model, draft;  ///< [T, V], [T - 1, V]
};

Recording recording(const std::string& name, std::size_t vocabulary) {
  std::ifstream file(fixture(name + ".f32"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  Rows numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(float));
  const auto count = (numbers.size() + vocabulary) / (2 * vocabulary + 1);
  const auto rows = numbers.begin() + static_cast<std::ptrdiff_t>(count);
  const auto drafts = rows + static_cast<std::ptrdiff_t>(count * vocabulary);
  return {{numbers.begin(), rows}, {rows, drafts}, {drafts, numbers.end()}};
}

std::unique_ptr<LoadedModel> open(const std::string& name, BackendKind backend) {
  LoadOptions options{.backend = backend, .threads = backend == BackendKind::kCpu ? 2 : 1};
  options.drafts = true;
  if (name == "deepseek4") options.draft_file = fixture("deepseek4-mtp.gguf");
  return LoadedModel::open(fixture(name + ".gguf"), options);
}

struct Evaluated {
  Rows model;
  std::vector<Rows> drafts;
};

Evaluated evaluated(LoadedModel& model, std::span<const std::int32_t> tokens,
                    const Chunking& chunking = {}) {
  Evaluated out;
  out.drafts.resize(model.plan().drafts.size());
  const StateOptions options{.format = algorithm::RowFormat::kF32, .max_rows = 64};
  evaluate_with_drafts(
      model, options, tokens, chunking,
      [&](std::uint32_t, std::span<const float> row) {
        out.model.insert(out.model.end(), row.begin(), row.end());
      },
      [&](std::size_t block, std::uint32_t position, std::span<const float> row) {
        Rows& rows = out.drafts.at(block);
        EXPECT_EQ(position, rows.size() / row.size() + block + 1);
        rows.insert(rows.end(), row.begin(), row.end());
      });
  return out;
}

float largest_difference(const Rows& a, const Rows& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = a.size() == b.size() ? 0.f : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

class DraftBlocks : public ::testing::TestWithParam<std::tuple<const char*, BackendKind>> {
 protected:
  void SetUp() override {
    const auto [name, backend] = GetParam();
    model_ = open(name, backend);
    recorded_ = recording(name, model_->plan().vocabulary);
    ASSERT_EQ(model_->plan().drafts.size(), 1u);
  }
  std::unique_ptr<LoadedModel> model_;
  Recording recorded_;
};

TEST_P(DraftBlocks, GiveTheLogitsOfLlamaCpp) {
  const Evaluated own = evaluated(*model_, recorded_.tokens);
  const float model = largest_difference(own.model, recorded_.model);
  const float draft = largest_difference(own.drafts[0], recorded_.draft);
  EXPECT_LT(model, kTolerance);
  EXPECT_LT(draft, kTolerance);
  std::printf("[ measured ] %s: model %.1e, draft %.1e\n", std::get<0>(GetParam()), model, draft);
}

TEST_P(DraftBlocks, GiveTheSameBitsHoweverTheTokensAreCut) {
  const Evaluated whole = evaluated(*model_, recorded_.tokens);
  Chunking cut, stepwise, generated;
  cut.cuts = {1, 7, 13};
  stepwise.stepwise = true;
  generated.generated_from = 9;  // weights are f32: the class changes nothing
  for (const Chunking& chunking : {cut, stepwise, generated}) {
    const Evaluated parts = evaluated(*model_, recorded_.tokens, chunking);
    EXPECT_EQ(parts.model, whole.model);
    EXPECT_EQ(parts.drafts, whole.drafts);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, DraftBlocks,
    ::testing::Combine(::testing::Values("glm4moe", "deepseek2", "qwen3next", "deepseek4"),
                       ::testing::Values(BackendKind::kReference, BackendKind::kCpu)),
    [](const auto& test) {
      return std::string(std::get<0>(test.param)) +
             (std::get<1>(test.param) == BackendKind::kCpu ? "_cpu" : "_reference");
    });

// A second block reads what the first handed on: here a copy of the first, run by hand beside it.
TEST(DraftChain, HandsRowsOnFromBlockToBlock) {
  auto checkpoint = weights::open_checkpoint(fixture("glm4moe.gguf"));
  model::Plan plan = model::make_plan(*checkpoint, {});
  plan.drafts.push_back(plan.drafts[0]);
  LoadOptions options{.backend = BackendKind::kReference};
  options.drafts = true;
  const auto model = LoadedModel::assemble(std::move(checkpoint), std::move(plan), options);
  const Recording recorded = recording("glm4moe", model->plan().vocabulary);
  const std::span<const std::int32_t> tokens(recorded.tokens);
  const Evaluated chained = evaluated(*model, tokens);
  EXPECT_EQ(chained.drafts[1].size(), (tokens.size() - 2) * model->plan().vocabulary);

  const StateOptions state{.format = algorithm::RowFormat::kF32, .max_rows = 64};
  HandedOnRows own(model->program());
  backend::Observer* observer = &own;
  StateOptions observed = state;
  observed.observers = {&observer, 1};
  StateSpace space(*model, observed);
  state::Sequence sequence(space.pool());
  evaluate(*model, space, sequence, tokens, {}, {});
  DraftRun first(*model, 0, state), second(*model, 1, state);
  first.run(tokens.subspan(1), own.rows().first((tokens.size() - 1) * own.width()),
            state::TokenClass::kEntered);
  second.run(tokens.subspan(2), first.handed_on().first((tokens.size() - 2) * first.width()),
             state::TokenClass::kEntered);
  const auto last = second.logits(tokens.size() - 3);
  const std::span<const float> chained_last =
      std::span<const float>(chained.drafts[1]).last(last.size());
  EXPECT_TRUE(std::ranges::equal(last, chained_last));
}

TEST(DraftEvaluation, OfAModelWithoutDraftBlocksIsRefused) {
  const auto model =
      LoadedModel::open(fixture("deepseek4.gguf"), {.backend = BackendKind::kReference});
  const std::vector<std::int32_t> tokens = {1, 5};
  EXPECT_THROW(evaluate_with_drafts(*model, {}, tokens, {}, {}, {}), Error);
}

TEST(DraftFile, OfAnotherModelIsRefusedNamingTheFile) {
  LoadOptions options{.backend = BackendKind::kReference};
  options.draft_file = fixture("deepseek4-mtp.gguf");
  try {
    LoadedModel::open(fixture("qwen3next.gguf"), options);
    FAIL() << "a draft block of another model was taken";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("deepseek4-mtp.gguf"), std::string::npos) << message;
    EXPECT_NE(message.find("architecture is 'deepseek4_mtp_support', the model's 'qwen3next'"),
              std::string::npos)
        << message;
  }
}

}  // namespace
}  // namespace lemma::runtime
