// SPDX-License-Identifier: Apache-2.0
// The plans of the golden models: what each family gets right or wrong before anything runs. The
// numbers are facts of the models (windows, pairings, norms, scales), not of lemma; whether the
// plans compute the right logits is tested in tests/golden.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "lemma/error.hpp"
#include "model/arch/arch.hpp"
#include "model/arch/tiny_checkpoint.hpp"
#include "model/plan_cost.hpp"
#include "model/plan_print.hpp"
#include "test_data.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::NormKind;
using algorithm::RopeLayout;
using algorithm::RopeScaling;
using weights::Value;

const Gqa& attention(const Plan& plan, std::size_t layer) {
  return std::get<Gqa>(plan.layers.at(layer).sites.at(0).mixer);
}
const DenseMlp& ffn(const Plan& plan, std::size_t layer) {
  return std::get<DenseMlp>(plan.layers.at(layer).sites.at(1).mixer);
}
std::vector<std::uint32_t> windows(const Plan& plan) {
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    out.push_back(attention(plan, i).spec.window);
  return out;
}
std::vector<bool> rotated(const Plan& plan) {
  std::vector<bool> out;
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    out.push_back(attention(plan, i).rope.has_value());
  return out;
}

// ---- every variant ----

class GoldenPlan : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    LEMMA_TEST_DATA_OR_SKIP(path, std::string("goldens/") + GetParam() + "/model.gguf");
    checkpoint_ = weights::open_checkpoint(path);
    plan_ = make_plan(*checkpoint_, {.context = 128});
  }
  std::unique_ptr<const weights::Checkpoint> checkpoint_;
  Plan plan_;
};

INSTANTIATE_TEST_SUITE_P(
    All, GoldenPlan,
    ::testing::Values("llama-mha", "llama-gqa", "llama-mqa-tied-bias", "llama-rope-freqs",
                      "llama-rope-linear", "llama-yarn", "llama-yarn-attnfactor", "qwen2", "qwen3",
                      "gemma", "gemma2", "gemma3", "gemma3-linear", "mistral3", "phi3",
                      "phi3-longrope-long", "phi3-longrope-short", "granite", "smollm3", "olmo2",
                      "cohere2", "command-r", "stablelm", "stablelm-parallel-qknorm", "starcoder2",
                      "gpt2", "llama-moe", "qwen2moe", "qwen3moe", "olmoe", "granitemoe",
                      "granitemoe-shared", "phi2", "falcon", "falcon-40b", "bloom", "mpt",
                      "gptneox", "gptneox-sequential", "olmo", "starcoder", "glm4", "glm4moe",
                      "glm4moe-nextn", "minimax-m2", "gpt-oss", "bailingmoe2", "gemma4",
                      "gemma4-moe", "gemma4-sharedkv", "bert", "minimax-m3", "minimax-m3-dense"),
    [](const auto& test) {
      std::string name = test.param;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });
INSTANTIATE_TEST_SUITE_P(LatentSparseRecurrent, GoldenPlan,
                         ::testing::Values("deepseek2-v2lite-kvb", "deepseek2-noq-mla",
                                           "deepseek2-lite26", "deepseek2-v3-mla", "mistral4",
                                           "deepseek32", "glm-dsa", "glm-dsa-shared", "glm-dsa-576",
                                           "deepseek4", "deepseek4-hash", "deepseek4-clamp-shexp",
                                           "deepseek4-csa", "deepseek4-hca-long", "qwen3next",
                                           "qwen3next-legacy-ssm-in", "qwen35", "qwen35-state128",
                                           "qwen35moe", "kimi-linear", "bailingmoe3"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// How many rows of a tensor the plan holds as a weight.
std::uint64_t held_rows(const weights::TensorInfo& tensor) {
  const std::string& name = tensor.name;
  // Their values stand in the plan itself; of LongRoPE's two lists one is not used.
  if (name.starts_with("rope_f") || name.ends_with("layer_output_scale.weight")) return 0;
  if (name == "token_types.weight") return 1;  // every token has the first type
  return tensor.rows();
}

TEST_P(GoldenPlan, NamesEveryTensorOfTheFile) {
  std::set<std::string> named;
  for (const WeightRef* weight : weights_of(plan_)) named.insert(weight->tensor);
  for (const weights::TensorInfo& tensor : checkpoint_->tensors())
    EXPECT_EQ(named.contains(tensor.name), held_rows(tensor) > 0) << tensor.name;
}

TEST_P(GoldenPlan, TurnsByTheFactorsOfTheFile) {
  std::size_t lists = 0, layers_with_factors = 0;
  for (const weights::TensorInfo& tensor : checkpoint_->tensors())
    lists += tensor.name.starts_with("rope_f");
  for (const Layer& layer : plan_.layers)
    if (const auto* gqa = std::get_if<Gqa>(&layer.sites.at(0).mixer); gqa && gqa->rope)
      layers_with_factors += std::holds_alternative<algorithm::FactorScaling>(gqa->rope->scaling);
  EXPECT_EQ(lists > 0, layers_with_factors > 0);
}

TEST_P(GoldenPlan, CostsTheBytesOfTheFile) {
  const std::string draft = "blk." + std::to_string(plan_.layers.size()) + ".";
  std::uint64_t bytes = 0, elements = 0, draft_bytes = 0;
  for (const weights::TensorInfo& tensor : checkpoint_->tensors()) {
    const std::uint64_t held =
        held_rows(tensor) * weights::row_bytes(tensor.format, tensor.row_elements());
    if (tensor.name.starts_with(draft)) {
      draft_bytes += held;
      continue;
    }
    elements += held_rows(tensor) * tensor.row_elements();
    bytes += held;
  }
  const Cost cost = cost_of(plan_, *checkpoint_, {});
  EXPECT_EQ(cost.weight_bytes, bytes);
  EXPECT_EQ(cost.draft_weight_bytes, draft_bytes);
  EXPECT_EQ(cost.draft_state_bytes > 0, draft_bytes > 0);
  EXPECT_EQ(cost.parameters, elements);
  EXPECT_GE(cost.state_bytes, cost.state_formula_bytes);
}

TEST_P(GoldenPlan, IsWrittenWholeAsJson) {
  const std::string text = to_json(plan_);
  EXPECT_EQ(nlohmann::json::parse(text).at("layers").size(), plan_.layers.size());
  for (const WeightRef* weight : weights_of(plan_))
    EXPECT_NE(text.find("\"" + weight->tensor + "\""), std::string::npos) << weight->tensor;
}

TEST_P(GoldenPlan, RefusesAKeyOfAnotherKindOfModel) {
  TinyCheckpoint copy(*checkpoint_);
  copy.set(plan_.architecture + ".wkv.head_size", std::int64_t{64});
  EXPECT_THROW(make_plan(copy, {.context = 128}), Error);
}

TEST_P(GoldenPlan, IsAPlanOrAnErrorForAnyValueOfAnyKey) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<decltype(Value::data)> values = {std::int64_t{0},
                                                     std::int64_t{1},
                                                     std::int64_t{-1},
                                                     std::int64_t{1} << 24,
                                                     std::int64_t{3},
                                                     std::int64_t{0xffffffff},
                                                     std::int64_t{1} << 62,
                                                     ~std::uint64_t{0},
                                                     0.0,
                                                     1e-30,
                                                     -1.0,
                                                     1e30,
                                                     kInfinity,
                                                     kInfinity - kInfinity,
                                                     true,
                                                     false,
                                                     std::string(),
                                                     std::string("yarn"),
                                                     Value::Ints{},
                                                     Value::Ints(64, 1),
                                                     Value::Ints(64, 1 << 24),
                                                     Value::Bools(64, true),
                                                     Value::Floats{1.0}};
  std::size_t plans = 0, errors = 0;
  for (const auto& [key, original] : checkpoint_->metadata().pairs()) {
    if (!key.starts_with(plan_.architecture)) continue;
    for (const auto& value : values) {
      TinyCheckpoint altered(*checkpoint_);
      std::visit([&](const auto& data) { altered.set(key, data); }, value);
      try {
        const Plan plan = make_plan(altered, {});
        EXPECT_FALSE(to_text(plan).empty());
        EXPECT_TRUE(nlohmann::json::accept(to_json(plan)));
        cost_of(plan, altered, {});
        ++plans;
      } catch (const Error&) {
        ++errors;
      }
    }
  }
  EXPECT_GT(plans, 0u);
  EXPECT_GT(errors, plans);
}

// ---- one family each ----

class Family : public ::testing::Test {
 protected:
  // An altered copy of a golden file; empty where there is no data.
  TinyCheckpoint& open(const std::string& variant) {
    const auto path = test::find_data("goldens/" + variant + "/model.gguf");
    if (path) {
      file_ = weights::open_checkpoint(*path);
      copy_ = TinyCheckpoint(*file_);
    }
    return copy_;
  }
  void SetUp() override {
    LEMMA_TEST_DATA_OR_SKIP(folder, "goldens");
    ASSERT_FALSE(folder.empty());
  }

  std::unique_ptr<const weights::Checkpoint> file_;
  TinyCheckpoint copy_;
};

TEST_F(Family, LlamaPairsNeighboursAndTakesBiases) {
  const Plan plan = make_plan(open("llama-mqa-tied-bias"), {});
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(attention(plan, 0).spec.kv_heads, 1u);
  EXPECT_EQ(attention(plan, 1).output.bias.tensor, "blk.1.attn_output.bias");
  EXPECT_EQ(ffn(plan, 1).down.bias.tensor, "blk.1.ffn_down.bias");
  EXPECT_EQ(plan.head.output.weight.tensor, "token_embd.weight");
}

TEST_F(Family, LlamaTakesHeadsNarrowerThanItsWidth) {
  const Plan plan = make_plan(open("llama-gqa"), {});
  EXPECT_EQ(attention(plan, 0).spec.head_dim, 16u);
  EXPECT_EQ(attention(plan, 0).spec.query_heads, 8u);
  EXPECT_EQ(plan.width, 64u);
}

TEST_F(Family, LlamaSlidesInEveryLayerWhereTheFileSaysSo) {
  const Plan plan =
      make_plan(open("llama-mha").set("llama.attention.sliding_window", std::int64_t{32}), {});
  EXPECT_EQ(windows(plan), (std::vector<std::uint32_t>{32, 32}));
}

TEST_F(Family, YarnTakesMagnitudeAndAttentionFactor) {
  const Plan plan = make_plan(open("llama-yarn-attnfactor"), {});
  const auto& yarn = std::get<algorithm::YarnScaling>(attention(plan, 0).rope->scaling);
  EXPECT_EQ(yarn.factor, 8.f);
  EXPECT_EQ(yarn.original_context, 1024.f);
  EXPECT_NEAR(attention(plan, 0).rope->attention_factor, 0.8 * (1 + 0.1 * std::log(8.0)), 1e-6);
}

TEST_F(Family, Qwen3NormsHeadsAndQwen2HasBiases) {
  const Plan three = make_plan(open("qwen3"), {});
  ASSERT_TRUE(attention(three, 0).qk_norm);
  EXPECT_EQ(attention(three, 0).qk_norm->extent, QkNorm::Extent::kPerHead);
  EXPECT_EQ(attention(three, 0).rope->layout, RopeLayout::kSplitHalf);
  const Plan two = make_plan(open("qwen2"), {});
  EXPECT_FALSE(attention(two, 0).qk_norm);
  EXPECT_EQ(attention(two, 0).key.bias.tensor, "blk.0.attn_k.bias");
}

TEST_F(Family, Gemma2SlidesInEvenLayersAndCaps) {
  TinyCheckpoint& file = open("gemma2");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(plan.embedding.scale, 8.f);
  EXPECT_EQ(windows(plan), (std::vector<std::uint32_t>{8, 0, 8, 0}));
  EXPECT_EQ(attention(plan, 1).spec.softcap, 5.f);
  EXPECT_EQ(plan.head.softcap, 3.f);
  EXPECT_EQ(plan.layers[0].sites[0].branch_norm->weight.tensor, "blk.0.post_attention_norm.weight");
  EXPECT_EQ(plan.layers[0].sites[1].branch_norm->weight.tensor, "blk.0.post_ffw_norm.weight");
  EXPECT_EQ(ffn(plan, 0).spec.activation.kind, algorithm::Activation::kGeluTanh);

  file.remove("gemma2.attn_logit_softcapping").remove("gemma2.final_logit_softcapping");
  file.remove("gemma2.attention.sliding_window");
  const Plan defaults = make_plan(file, {});
  EXPECT_EQ(attention(defaults, 0).spec.softcap, 50.f);
  EXPECT_EQ(defaults.head.softcap, 30.f);
  EXPECT_EQ(windows(defaults), (std::vector<std::uint32_t>{4096, 0, 4096, 0}));
}

TEST_F(Family, GemmaScalesScoresOfNarrowHeadsByTheWidth) {
  struct Model {
    std::int64_t width, heads, head_dim;
    double scalar;  // query_pre_attn_scalar of the published configurations
  };
  for (const Model& model :
       {Model{2304, 8, 256, 256}, Model{3584, 16, 256, 256}, Model{4608, 32, 128, 144}}) {
    TinyCheckpoint& file = open("gemma2");
    file.set("gemma2.embedding_length", model.width)
        .set("gemma2.attention.head_count", model.heads)
        .set("gemma2.attention.key_length", model.head_dim)
        .set("gemma2.attention.value_length", model.head_dim);
    EXPECT_NEAR(attention(make_plan(file, {}), 0).spec.scale, 1 / std::sqrt(model.scalar), 1e-7);
  }
  for (const Model& model : {Model{640, 4, 256, 256}, Model{1152, 4, 256, 256},
                             Model{3840, 16, 256, 256}, Model{5376, 32, 128, 168}}) {
    TinyCheckpoint& file = open("gemma3");
    file.set("gemma3.embedding_length", model.width)
        .set("gemma3.attention.head_count", model.heads)
        .set("gemma3.attention.key_length", model.head_dim)
        .set("gemma3.attention.value_length", model.head_dim);
    EXPECT_NEAR(attention(make_plan(file, {}), 0).spec.scale, 1 / std::sqrt(model.scalar), 1e-7);
  }
}

TEST_F(Family, Gemma3HasALocalBaseAndScalesGlobalLayersOnly) {
  TinyCheckpoint& file = open("gemma3-linear");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(windows(plan), (std::vector<std::uint32_t>{8, 8, 8, 8, 8, 0, 8}));
  EXPECT_EQ(attention(plan, 0).rope->theta, 10000.f);
  EXPECT_EQ(attention(plan, 0).rope->scaling, RopeScaling());
  EXPECT_EQ(attention(plan, 5).rope->theta, 1e6f);
  EXPECT_EQ(attention(plan, 5).rope->scaling, RopeScaling(algorithm::LinearScaling{8.f}));
  EXPECT_EQ(attention(plan, 0).spec.softcap, 0.f);
  EXPECT_EQ(plan.head.softcap, 0.f);

  file.set("gemma3.rope.freq_base_swa", 5000.0);
  EXPECT_EQ(attention(make_plan(file, {}), 0).rope->theta, 5000.f);
}

TEST_F(Family, Gemma3TakesThePatternOfTheFile) {
  TinyCheckpoint& file = open("gemma3");
  const std::string key = "gemma3.attention.sliding_window_pattern";
  file.set(key, std::int64_t{2});
  EXPECT_EQ(windows(make_plan(file, {})), (std::vector<std::uint32_t>{8, 0, 8, 0, 8, 0, 8}));
  file.set(key, Value::Bools{true, true, false, false, true, true, false});
  EXPECT_EQ(windows(make_plan(file, {})), (std::vector<std::uint32_t>{8, 8, 0, 0, 8, 8, 0}));
  file.set(key, Value::Ints{0, 0, 0, 0, 0, 0, 1});
  EXPECT_EQ(windows(make_plan(file, {})), (std::vector<std::uint32_t>{0, 0, 0, 0, 0, 0, 8}));
  file.set(key, Value::Bools{true, false});
  try {
    make_plan(file, {});
    FAIL() << "a pattern for two of seven layers was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
  }
}

TEST_F(Family, Mistral3RaisesTheTemperatureOncePerOriginalContext) {
  TinyCheckpoint& file = open("mistral3");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(attention(plan, 0).spec.temperature_scale, 0.1f);
  EXPECT_EQ(attention(plan, 0).spec.temperature_floor, 8u);
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kInterleaved);
  EXPECT_NEAR(attention(plan, 0).rope->attention_factor, 1.0, 1e-6);  // m(1) / m(1)
  file.set("mistral3.attention.temperature_length", std::int64_t{64});
  EXPECT_EQ(attention(make_plan(file, {}), 0).spec.temperature_floor, 64u);
  file.set("mistral3.attention.temperature_scale", 0.0);
  EXPECT_EQ(attention(make_plan(file, {}), 0).spec.temperature_floor, 0u);
}

TEST_F(Family, Phi3CutsItsFusedMatricesAndKeepsItsWindow) {
  const Plan plan = make_plan(open("phi3"), {});
  const Gqa& gqa = attention(plan, 1);
  EXPECT_EQ(gqa.query.weight, (WeightRef{"blk.1.attn_qkv.weight", View::rows(0, 64)}));
  EXPECT_EQ(gqa.key.weight, (WeightRef{"blk.1.attn_qkv.weight", View::rows(64, 96)}));
  EXPECT_EQ(gqa.value.weight, (WeightRef{"blk.1.attn_qkv.weight", View::rows(96, 128)}));
  EXPECT_EQ(ffn(plan, 1).gate.weight, (WeightRef{"blk.1.ffn_up.weight", View::rows(0, 80)}));
  EXPECT_EQ(ffn(plan, 1).up.weight, (WeightRef{"blk.1.ffn_up.weight", View::rows(80, 160)}));
  EXPECT_EQ(windows(plan), (std::vector<std::uint32_t>{4096, 4096}));
  EXPECT_EQ(gqa.rope->layout, RopeLayout::kSplitHalf);
}

TEST_F(Family, LongRopeChoosesItsListByTheContextInUse) {
  TinyCheckpoint& file = open("phi3-longrope-long");  // made for 64, stretched to 256
  const auto at = [&](std::uint32_t context) {
    return *attention(make_plan(file, {.context = context}), 0).rope;
  };
  EXPECT_EQ(at(16).scaling, at(64).scaling);
  EXPECT_EQ(at(65).scaling, at(0).scaling);
  EXPECT_NE(at(64).scaling, at(65).scaling);
  EXPECT_EQ(at(64).attention_factor, 1.19f);
  file.remove("phi3.rope.scaling.attn_factor");
  EXPECT_NEAR(at(65).attention_factor, std::sqrt(1 + std::log(4.0) / std::log(64.0)), 1e-6);
  file.remove_tensor("rope_factors_short.weight");
  EXPECT_THROW(at(65), Error);
}

TEST_F(Family, GraniteScalesAllOfItAndDividesItsLogits) {
  TinyCheckpoint& file = open("granite");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(plan.embedding.scale, 6.f);
  EXPECT_EQ(plan.layers[0].sites[0].scale, 0.4f);
  EXPECT_EQ(plan.layers[1].sites[1].scale, 0.4f);
  EXPECT_EQ(attention(plan, 0).spec.scale, 0.11f);
  EXPECT_EQ(plan.head.scale, 0.25f);
  file.set("granite.rope.scaling.finetuned", false);
  EXPECT_EQ(rotated(make_plan(file, {})), (std::vector<bool>{false, false}));
}

TEST_F(Family, SmolLm3DoesNotTurnEveryFourthLayer) {
  EXPECT_EQ(rotated(make_plan(open("smollm3"), {})),
            (std::vector<bool>{true, true, true, false, true}));
}

TEST_F(Family, Olmo2NormsBranchesAndWholeRows) {
  TinyCheckpoint& file = open("olmo2");
  const Plan plan = make_plan(file, {});
  EXPECT_FALSE(plan.layers[0].sites[0].norm);
  EXPECT_FALSE(plan.layers[0].sites[1].norm);
  EXPECT_EQ(plan.layers[0].sites[0].branch_norm->weight.tensor, "blk.0.post_attention_norm.weight");
  EXPECT_EQ(attention(plan, 0).qk_norm->extent, QkNorm::Extent::kWholeRow);
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kSplitHalf);
  EXPECT_EQ(windows(plan), (std::vector<std::uint32_t>{0, 0}));

  file.set("olmo2.attention.sliding_window", std::int64_t{8})
      .set("olmo2.attention.sliding_window_pattern", Value::Bools{true, false})
      .set("olmo2.rope.scaling.type", std::string("yarn"))
      .set("olmo2.rope.scaling.factor", 8.0);
  const Plan three = make_plan(file, {});
  EXPECT_EQ(windows(three), (std::vector<std::uint32_t>{8, 0}));
  EXPECT_EQ(attention(three, 0).rope->scaling, RopeScaling());
  EXPECT_EQ(attention(three, 0).rope->attention_factor, 1.f);
  EXPECT_TRUE(std::holds_alternative<algorithm::YarnScaling>(attention(three, 1).rope->scaling));
}

TEST_F(Family, Cohere2TurnsSlidingLayersOnly) {
  const Plan plan = make_plan(open("cohere2"), {});
  EXPECT_EQ(windows(plan), (std::vector<std::uint32_t>{8, 8, 8, 0, 8}));
  EXPECT_EQ(rotated(plan), (std::vector<bool>{true, true, true, false, true}));
  EXPECT_TRUE(plan.layers[0].side_by_side);
  EXPECT_TRUE(plan.layers[0].sites[1].shares_norm);
  EXPECT_EQ(plan.head.scale, 0.25f);
  EXPECT_EQ(plan.final_norm->spec.kind, NormKind::kLayer);
}

TEST_F(Family, CommandRNormsItsHeadsWhereTheFileHasNorms) {
  TinyCheckpoint& file = open("command-r");
  EXPECT_FALSE(attention(make_plan(file, {}), 0).qk_norm);
  for (const char* block : {"blk.0.", "blk.1."}) {
    file.add_tensor(block + std::string("attn_q_norm.weight"), {4, 16});
    file.add_tensor(block + std::string("attn_k_norm.weight"), {2, 16});
  }
  const Plan plus = make_plan(file, {});
  ASSERT_TRUE(attention(plus, 0).qk_norm);
  EXPECT_EQ(attention(plus, 0).qk_norm->extent, QkNorm::Extent::kPerHeadOwn);
  EXPECT_EQ(attention(plus, 0).qk_norm->key.spec.kind, NormKind::kLayer);
  EXPECT_EQ(attention(plus, 0).rope->layout, RopeLayout::kInterleaved);
}

TEST_F(Family, StableLmIsParallelWhereItHasOneNorm) {
  const Plan sequential = make_plan(open("stablelm"), {});
  EXPECT_FALSE(sequential.layers[0].side_by_side);
  EXPECT_EQ(sequential.layers[0].sites[1].norm->bias.tensor, "blk.0.ffn_norm.bias");
  EXPECT_EQ(attention(sequential, 0).rope->rotary_dim, 4u);
  EXPECT_EQ(attention(sequential, 0).rope->layout, RopeLayout::kSplitHalf);
  const Plan parallel = make_plan(open("stablelm-parallel-qknorm"), {});
  EXPECT_TRUE(parallel.layers[0].side_by_side);
  EXPECT_TRUE(parallel.layers[0].sites[1].shares_norm);
  EXPECT_EQ(attention(parallel, 0).qk_norm->extent, QkNorm::Extent::kPerHeadOwn);
  EXPECT_EQ(attention(parallel, 0).qk_norm->query.spec.kind, NormKind::kLayer);
}

TEST_F(Family, StarCoder2IsUngatedWithBiases) {
  const Plan plan = make_plan(open("starcoder2"), {});
  EXPECT_FALSE(ffn(plan, 0).spec.gated);
  EXPECT_EQ(ffn(plan, 0).up.bias.tensor, "blk.0.ffn_up.bias");
  EXPECT_EQ(ffn(plan, 0).spec.activation.kind, algorithm::Activation::kGeluTanh);
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kSplitHalf);
  EXPECT_EQ(plan.final_norm->bias.tensor, "output_norm.bias");
}

TEST_F(Family, Gpt2LearnsPositionsAndTurnsNothing) {
  TinyCheckpoint& file = open("gpt2");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(plan.embedding.positions.tensor, "position_embd.weight");
  EXPECT_EQ(plan.embedding.position_rows, 128u);
  EXPECT_EQ(rotated(plan), (std::vector<bool>{false, false}));
  EXPECT_EQ(attention(plan, 0).value.bias,
            (WeightRef{"blk.0.attn_qkv.bias", View::elements(128, 192)}));
  EXPECT_THROW(make_plan(file, {.context = 129}), Error);
  file.set("gpt2.context_length", std::int64_t{256});
  EXPECT_THROW(make_plan(file, {}), Error);
}

}  // namespace
}  // namespace lemma::model::arch
