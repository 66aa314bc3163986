// SPDX-License-Identifier: Apache-2.0
// What an explanation says is what the model computed.
#include "eval/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eval/explain_attention.hpp"
#include "runtime/evaluation.hpp"
#include "test_data.hpp"

namespace lemma::eval {
namespace {

using ::testing::HasSubstr;

const std::vector<std::int32_t> kTokens = {1,   403, 407, 261, 378, 432, 383, 286, 261, 376,
                                           410, 299, 421, 300, 265, 274, 401, 335, 300, 343};

/// The tensor that a slot is filled with.
backend::Tensor stored_in(const backend::Program& program, backend::SlotId slot) {
  for (const backend::Operation& operation : program.operations)
    if (const auto* store = std::get_if<backend::Store>(&operation); store && store->slot == slot)
      return store->in;
  return {};
}

/// Weights times captured values against the captured heads: the largest difference.
double check_heads(const runtime::LoadedModel& model, const state::Layout& layout,
                   const AttentionSite& site, const SiteRows& rows) {
  const auto& op = std::get<backend::Attend>(model.program().operations[site.operation]);
  const backend::Tensor values = stored_in(model.program(), op.value);
  AttentionWeights weights(model, layout, site, rows);
  const std::size_t d = op.spec.value_dim;
  double worst = 0;
  for (std::uint32_t head = 0; head < site.heads; ++head)
    for (std::uint32_t t = 0; t < weights.tokens(); ++t) {
      const std::vector<float> read = weights.of(head, t);
      for (std::size_t i = 0; i < d; ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < read.size(); ++j)
          sum += double(read[j]) * double(rows.row(values.id, j)[op.spec.kv_head(head) * d + i]);
        worst = std::max(worst, std::abs(sum - double(rows.row(op.out.id, t)[head * d + i])));
      }
    }
  return worst;
}

class AttentionWeightsTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Goldens, AttentionWeightsTest,
                         ::testing::Values("llama-gqa", "qwen3moe", "gpt-oss", "gemma2", "bloom",
                                           "mistral3", "minimax-m3", "gemma4-sharedkv"),
                         [](const auto& golden) {
                           std::string name = golden.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Full and windowed attention, sinks, soft-cap, ALiBi, temperature, selected blocks, shared keys.
TEST_P(AttentionWeightsTest, TimesTheValuesAreTheHeads) {
  LEMMA_TEST_DATA_OR_SKIP(path, std::string("goldens/") + GetParam() + "/model.gguf");
  ModelRun run({.path = path, .backend = BackendKind::kReference});
  const backend::Program& program = run.model().program();
  const auto sites = attention_sites(run.model());
  SiteRows rows(program);
  for (const AttentionSite& site : sites) {
    const auto& op = std::get<backend::Attend>(program.operations[site.operation]);
    for (const backend::Tensor tensor :
         {site.query, site.key, site.selection, op.out, stored_in(program, op.value)})
      rows.want(tensor);
  }
  backend::Observer* const observer = &rows;
  run.prepare({&observer, 1}, 64, 1);
  state::Sequence sequence(run.space().pool());
  runtime::evaluate(run.model(), run.space(), sequence, kTokens, {}, {});
  ASSERT_FALSE(sites.empty());
  for (const AttentionSite& site : sites)
    EXPECT_LT(check_heads(run.model(), run.space().layout(), site, rows), 2e-5) << site.name;
}

TEST(AttentionWeightsOfLatents, TimesTheExpandedValuesAreTheHeads) {
  for (const char* golden : {"deepseek2-v2lite-kvb", "deepseek2-v3-mla", "glm-dsa"}) {
    LEMMA_TEST_DATA_OR_SKIP(path, std::string("goldens/") + golden + "/model.gguf");
    ModelRun run({.path = path, .backend = BackendKind::kReference});
    const backend::Program& program = run.model().program();
    const auto sites = attention_sites(run.model());
    SiteRows rows(program);
    for (const AttentionSite& site : sites) {
      const auto& op = std::get<backend::AttendLatent>(program.operations[site.operation]);
      for (const backend::Tensor tensor : {site.query, site.key, site.rope, site.selection, op.out})
        rows.want(tensor);
    }
    backend::Observer* const observer = &rows;
    run.prepare({&observer, 1}, 64, 1);
    state::Sequence sequence(run.space().pool());
    runtime::evaluate(run.model(), run.space(), sequence, kTokens, {}, {});
    for (const AttentionSite& site : sites) {
      const auto& op = std::get<backend::AttendLatent>(program.operations[site.operation]);
      const auto& mixer = std::get<model::Mla>(*site.mixer);
      const std::size_t dv = op.spec.value_dim, rank = op.spec.latent_rank;
      const auto up = weights::to_f32(
          weights::bind(run.model().checkpoint(), mixer.value_up, op.spec.heads * dv, rank));
      AttentionWeights weights(run.model(), run.space().layout(), site, rows);
      for (std::uint32_t head = 0; head < site.heads; ++head)
        for (std::uint32_t t = 0; t < weights.tokens(); ++t) {
          const std::vector<float> read = weights.of(head, t);
          for (std::size_t i = 0; i < dv; ++i) {
            double sum = 0;
            for (std::size_t j = 0; j < read.size(); ++j)
              for (std::size_t c = 0; c < rank; ++c)
                sum += double(read[j]) * double(rows.row(site.key.id, j)[c]) *
                       double(up[(head * dv + i) * rank + c]);
            ASSERT_NEAR(sum, double(rows.row(op.out.id, t)[head * dv + i]), 2e-5) << site.name;
          }
        }
    }
  }
}

Explanation explain_golden(const std::filesystem::path& path, const ExplainOptions& options) {
  ModelRun run({.path = path, .threads = 1});
  return explain(run, std::span(kTokens).first(6), options);
}

TEST(Explain, ChoosesWhatTheLogitsSayAndCountsEveryExpert) {
  LEMMA_TEST_DATA_OR_SKIP(path, "goldens/qwen3moe/model.gguf");
  const Explanation e = explain_golden(path, {.sampling = {.temperature = 0.f}, .max_tokens = 4});
  ASSERT_EQ(e.choices.size(), 4u);
  ASSERT_EQ(e.tokens.size(), 10u);
  ASSERT_EQ(e.steps.size(), 4u);
  EXPECT_TRUE(e.steps[0].prefill);
  EXPECT_EQ(e.steps[3].length, 9u);
  for (const Choice& choice : e.choices) {
    EXPECT_EQ(choice.stages.front().best.front().id, choice.id);
    EXPECT_EQ(choice.stages.front().kept, e.info.vocabulary);
    EXPECT_EQ(choice.stages.back().kept, 1u);
  }
  for (const LayerView& layer : e.layers)
    for (const ExpertView& view : layer.experts) {
      std::uint32_t uses = 0;
      for (const std::uint32_t use : view.use) uses += use;
      EXPECT_EQ(uses, 9 * view.chosen);
      EXPECT_EQ(view.ids.size(), view.chosen);
    }
  EXPECT_FALSE(e.layers[0].experts.empty());
}

TEST(Explain, StagesOnlyNarrowTheCandidatesAndTheirProbabilitiesSumToOne) {
  LEMMA_TEST_DATA_OR_SKIP(path, "goldens/llama-gqa/model.gguf");
  const Explanation e = explain_golden(
      path, {.sampling = {.temperature = 0.7f, .top_k = 5, .top_p = 0.9f, .min_p = 0.05f},
             .seed = 3,
             .max_tokens = 3});
  for (const Choice& choice : e.choices) {
    ASSERT_EQ(choice.stages.size(), 5u);
    EXPECT_EQ(choice.stages[2].name, "top-k");
    EXPECT_EQ(choice.stages[2].kept, 5u);
    double sum = 0;
    bool found = false;
    for (const auto& candidate : choice.stages.back().best) {
      sum += double(candidate.probability);
      found |= candidate.id == choice.id;
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
    EXPECT_TRUE(found);
    for (std::size_t i = 1; i < choice.stages.size(); ++i)
      EXPECT_LE(choice.stages[i].kept, choice.stages[i - 1].kept);
  }
}

TEST(Explain, MapsSumToOneWhereNoSinkTakesAShare) {
  LEMMA_TEST_DATA_OR_SKIP(path, "goldens/llama-gqa/model.gguf");
  const Explanation e = explain_golden(path, {.max_tokens = 2});
  for (const LayerView& layer : e.layers)
    for (const AttentionView& view : layer.attention) {
      ASSERT_EQ(view.mean.size(), 49u);  // seven tokens were fed
      for (std::size_t t = 0; t < 7; ++t) {
        double sum = 0;
        for (std::size_t j = 0; j < 7; ++j) sum += double(view.mean[t * 7 + j]);
        EXPECT_NEAR(sum, 1.0, 1e-5);
        for (std::size_t j = t + 1; j < 7; ++j) EXPECT_EQ(view.mean[t * 7 + j], 0.f);
      }
    }
}

TEST(Explain, SaysWhatItCannotShow) {
  LEMMA_TEST_DATA_OR_SKIP(path, "goldens/qwen3next/model.gguf");
  const Explanation e = explain_golden(path, {.max_tokens = 1});
  EXPECT_THAT(e.layers[0].attention.at(0).hidden, HasSubstr("recurrent state"));
  EXPECT_TRUE(e.layers[0].attention[0].mean.empty());
}

TEST(Explain, RefusesAPromptThatNoMapCanHold) {
  LEMMA_TEST_DATA_OR_SKIP(path, "goldens/llama-gqa/model.gguf");
  ModelRun run({.path = path, .threads = 1, .context = 1024});
  EXPECT_THROW(explain(run, std::vector<std::int32_t>(kMostExplained + 1, 5), {}), Error);
  EXPECT_THROW(explain(run, {}, {}), Error);
  EXPECT_THROW(explain(run, std::vector<std::int32_t>{512}, {}), Error);
}

TEST(Stages, FoldLayersThatAreAlike) {
  LEMMA_TEST_DATA_OR_SKIP(path, "goldens/llama-gqa/model.gguf");
  const Explanation e = explain_golden(path, {.max_tokens = 1});
  ASSERT_EQ(e.stages.size(), 4u);  // embedding, attention, feed-forward, head
  EXPECT_EQ(e.stages[1].first_layer, 0u);
  EXPECT_EQ(e.stages[1].last_layer + 1, e.info.layers);
  EXPECT_EQ(e.stages[0].shape, "[6] ids -> [6, " + std::to_string(e.info.width) + "]");
  EXPECT_THAT(e.stages[3].shape, HasSubstr("[1, " + std::to_string(e.info.vocabulary) + "]"));
}

}  // namespace
}  // namespace lemma::eval
