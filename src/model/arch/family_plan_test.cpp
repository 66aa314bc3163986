// SPDX-License-Identifier: Apache-2.0
// The plans of the families with experts, with branches side by side, with shared keys and values,
// and of the encoder: what each is easily got wrong in. The numbers are facts of the models.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "lemma/error.hpp"
#include "model/arch/arch.hpp"
#include "model/arch/tiny_checkpoint.hpp"
#include "test_data.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;
using algorithm::RouteScore;
using weights::Value;

class Planned : public ::testing::Test {
 protected:
  void SetUp() override {
    LEMMA_TEST_DATA_OR_SKIP(folder, "goldens");
    ASSERT_FALSE(folder.empty());
  }
  // An altered copy of a golden file; empty where there is no data.
  TinyCheckpoint& open(const std::string& variant) {
    if (const auto path = test::find_data("goldens/" + variant + "/model.gguf")) {
      file_ = weights::open_checkpoint(*path);
      copy_ = TinyCheckpoint(*file_);
    }
    return copy_;
  }
  Plan plan(const std::string& variant) { return make_plan(open(variant), {}); }

  std::unique_ptr<const weights::Checkpoint> file_;
  TinyCheckpoint copy_;
};

template <typename Kind>
const Kind& mixer(const Plan& plan, std::size_t layer, std::size_t site) {
  return std::get<Kind>(plan.layers.at(layer).sites.at(site).mixer);
}
const Gqa& attention(const Plan& plan, std::size_t layer) {
  return mixer<Gqa>(plan, layer, 0);
}
const Moe& experts(const Plan& plan, std::size_t layer) {
  return mixer<Moe>(plan, layer, 1);
}
std::string norm_of(const Site& site) {
  return site.norm ? site.norm->weight.tensor : "";
}

// ---- routing ----

struct Router {
  const char* variant;
  std::size_t layer;
  RouteScore score;
  bool normalize, correction;
  std::uint32_t experts, chosen;
  float scale = 1.f;
};

TEST_F(Planned, RoutersChooseAndWeighAsTheirModelsDo) {
  constexpr auto kSoftmax = RouteScore::kSoftmax, kSigmoid = RouteScore::kSigmoid;
  for (const Router& router :
       {Router{"llama-moe", 0, kSoftmax, true, false, 8, 2},
        Router{"qwen2moe", 0, kSoftmax, false, false, 8, 2},
        Router{"qwen3moe", 1, kSoftmax, true, false, 8, 3},
        Router{"olmoe", 0, kSoftmax, false, false, 8, 3},
        Router{"granitemoe", 0, kSoftmax, true, false, 8, 3},
        Router{"glm4moe", 1, kSigmoid, true, true, 8, 3, 1.5f},
        Router{"minimax-m2", 0, kSigmoid, true, true, 8, 3},
        Router{"minimax-m3", 1, kSigmoid, true, true, 8, 3, 2.f},
        Router{"bailingmoe2", 1, kSigmoid, true, true, 8, 3, 2.5f},
        Router{"gpt-oss", 0, RouteScore::kSoftmaxOverChosen, false, false, 8, 3}}) {
    SCOPED_TRACE(router.variant);
    const algorithm::RoutingSpec spec = experts(plan(router.variant), router.layer).routing;
    EXPECT_EQ(spec.score, router.score);
    EXPECT_EQ(spec.normalize, router.normalize);
    EXPECT_EQ(spec.correction, router.correction);
    EXPECT_EQ(spec.experts, router.experts);
    EXPECT_EQ(spec.chosen, router.chosen);
    EXPECT_EQ(spec.scale, router.scale);
    EXPECT_EQ(spec.sum_floor, router.normalize ? 0x1p-14f : 0.f);
  }
}

TEST_F(Planned, RoutersObeyTheKeysOfTheFile) {
  TinyCheckpoint& file = open("qwen3moe");
  file.set("qwen3moe.expert_weights_norm", false)
      .set("qwen3moe.expert_gating_func", std::int64_t{4})
      .set("qwen3moe.expert_weights_scale", 1.5);
  const algorithm::RoutingSpec spec = experts(make_plan(file, {}), 0).routing;
  EXPECT_FALSE(spec.normalize);
  EXPECT_EQ(spec.sum_floor, 0.f);
  EXPECT_EQ(spec.score, RouteScore::kSqrtSoftplus);
  EXPECT_EQ(spec.scale, 1.5f);
  file.set("qwen3moe.expert_gating_func", std::int64_t{5});
  EXPECT_THROW(make_plan(file, {}), Error);
}

TEST_F(Planned, BailingMoe2ChoosesWithinTheBestGroups) {
  TinyCheckpoint& file = open("bailingmoe2");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(experts(plan, 1).routing.groups, 4u);
  EXPECT_EQ(experts(plan, 1).routing.kept_groups, 2u);
  EXPECT_EQ(experts(plan, 1).routing.group_best, 2u);
  EXPECT_EQ(mixer<DenseMlp>(plan, 0, 1).spec.hidden, 80u);
  EXPECT_EQ(experts(plan, 1).shared->spec.hidden, 24u);
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kSplitHalf);
  EXPECT_EQ(attention(plan, 0).rope->rotary_dim, 8u);
  file.remove("bailingmoe2.expert_group_used_count");
  EXPECT_THROW(make_plan(file, {}), Error);
}

TEST_F(Planned, ExpertsHaveTheirOwnWidthAndTheirTensors) {
  const Plan plan = this->plan("qwen2moe");
  EXPECT_EQ(experts(plan, 1).expert.hidden, 24u);
  EXPECT_EQ(experts(plan, 1).gate.weight.tensor, "blk.1.ffn_gate_exps.weight");
  EXPECT_EQ(experts(plan, 1).shared->spec.hidden, 48u);
  EXPECT_EQ(experts(plan, 1).shared_gate.tensor, "blk.1.ffn_gate_inp_shexp.weight");
  EXPECT_EQ(attention(plan, 0).query.bias.tensor, "blk.0.attn_q.bias");
  EXPECT_FALSE(attention(plan, 0).qk_norm);
}

TEST_F(Planned, ASharedExpertThatIsCountedMustBeThere) {
  TinyCheckpoint& file = open("olmoe");
  file.set("olmoe.expert_shared_count", std::int64_t{1});
  EXPECT_THROW(make_plan(file, {}), Error);
  TinyCheckpoint& other = open("granitemoe-shared");
  EXPECT_FALSE(experts(make_plan(other, {}), 0).shared_gate);
  other.set("granitemoe.expert_shared_feed_forward_length", std::int64_t{7});
  EXPECT_THROW(make_plan(other, {}), Error);
}

TEST_F(Planned, GraniteMoeScalesAsGraniteDoes) {
  const Plan plan = this->plan("granitemoe-shared");
  EXPECT_EQ(plan.embedding.scale, 6.f);
  EXPECT_EQ(plan.head.scale, 0.5f);
  EXPECT_EQ(plan.layers[1].sites[1].scale, 0.4f);
  EXPECT_EQ(attention(plan, 0).spec.scale, 0.11f);
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kInterleaved);
}

TEST_F(Planned, OlmoeNormsWholeRowsAndRotatesHalves) {
  const Plan plan = this->plan("olmoe");
  EXPECT_EQ(attention(plan, 0).qk_norm->extent, QkNorm::Extent::kWholeRow);
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kSplitHalf);
}

TEST_F(Planned, GptOssClampsSlidesAndSinks) {
  const Plan plan = this->plan("gpt-oss");
  EXPECT_EQ(attention(plan, 0).spec.window, 8u);
  EXPECT_EQ(attention(plan, 1).spec.window, 0u);
  EXPECT_EQ(attention(plan, 2).spec.window, 8u);
  EXPECT_EQ(attention(plan, 1).sinks.tensor, "blk.1.attn_sinks.weight");
  EXPECT_EQ(norm_of(plan.layers[0].sites[1]), "blk.0.post_attention_norm.weight");
  EXPECT_FALSE(plan.layers[0].sites[0].branch_norm);
  const Moe& moe = experts(plan, 0);
  EXPECT_EQ(moe.expert.activation.kind, Activation::kSwigluOai);
  EXPECT_EQ(moe.expert.activation.limit, 7.f);
  EXPECT_EQ(moe.expert.activation.alpha, 1.702f);
  EXPECT_EQ(moe.router.bias.tensor, "blk.0.ffn_gate_inp.bias");
  EXPECT_EQ(moe.down.bias.tensor, "blk.0.ffn_down_exps.bias");
  EXPECT_NEAR(attention(plan, 0).rope->attention_factor, 1 + 0.1 * std::log(4.0), 1e-6);
  EXPECT_TRUE(std::get<algorithm::YarnScaling>(attention(plan, 0).rope->scaling).truncate);
}

// ---- GLM ----

TEST_F(Planned, Glm4NormsBranchesAndPairsNeighbours) {
  const Plan plan = this->plan("glm4");
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(attention(plan, 0).rope->rotary_dim, 8u);
  EXPECT_EQ(plan.layers[0].sites[0].branch_norm->weight.tensor, "blk.0.post_attention_norm.weight");
  EXPECT_EQ(plan.layers[0].sites[1].branch_norm->weight.tensor, "blk.0.post_ffw_norm.weight");
  EXPECT_EQ(norm_of(plan.layers[0].sites[1]), "blk.0.ffn_norm.weight");
  EXPECT_EQ(mixer<DenseMlp>(plan, 0, 1).gate.weight,
            (WeightRef{"blk.0.ffn_up.weight", View::rows(0, 80)}));
}

TEST_F(Planned, Glm4MoePairsHalvesAndNormsBeforeTheBlock) {
  TinyCheckpoint& file = open("glm4moe");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kSplitHalf);
  EXPECT_EQ(attention(plan, 0).qk_norm->extent, QkNorm::Extent::kPerHead);
  EXPECT_EQ(norm_of(plan.layers[1].sites[1]), "blk.1.post_attention_norm.weight");
  EXPECT_FALSE(plan.layers[1].sites[0].branch_norm);
  EXPECT_EQ(mixer<DenseMlp>(plan, 0, 1).spec.hidden, 80u);
  for (const char* block : {"blk.0.", "blk.1."})
    for (const char* norm : {"attn_q_norm.weight", "attn_k_norm.weight"})
      file.remove_tensor(block + std::string(norm));
  EXPECT_FALSE(attention(make_plan(file, {}), 0).qk_norm);  // as in GLM-4.5 Air
}

TEST_F(Planned, BlocksThatPredictFurtherTokensAreNotLayers) {
  TinyCheckpoint& file = open("glm4moe-nextn");
  EXPECT_EQ(make_plan(file, {}).layers.size(), 2u);
  file.set("glm4moe.nextn_predict_layers", std::int64_t{3});
  EXPECT_THROW(make_plan(file, {}), Error);
  file.set("glm4moe.nextn_predict_layers", std::int64_t{0});
  EXPECT_THROW(make_plan(file, {}), Error);  // then the third is a layer with tensors too many
  TinyCheckpoint& without = open("glm4moe");
  without.set("glm4moe.block_count", std::int64_t{3});
  EXPECT_THROW(make_plan(without, {}), Error);
  without.set("glm4moe.nextn_predict_layers", std::int64_t{1});  // counted, but left out
  EXPECT_EQ(make_plan(without, {}).layers.size(), 2u);
}

// ---- MiniMax ----

TEST_F(Planned, MiniMaxM2NormsWholeRows) {
  const Plan plan = this->plan("minimax-m2");
  EXPECT_EQ(attention(plan, 0).qk_norm->extent, QkNorm::Extent::kWholeRow);
  EXPECT_EQ(attention(plan, 0).rope->rotary_dim, 16u);
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kSplitHalf);
  EXPECT_EQ(experts(plan, 0).expert.activation.kind, Activation::kSilu);
}

TEST_F(Planned, MiniMaxM3ChoosesBlocksBehindItsDenseLayers) {
  TinyCheckpoint& file = open("minimax-m3");
  const Plan plan = make_plan(file, {});
  EXPECT_FALSE(attention(plan, 0).indexer);
  ASSERT_TRUE(attention(plan, 1).indexer);
  const BlockIndexer& indexer = *attention(plan, 1).indexer;
  EXPECT_EQ(indexer.spec.block_size, 4u);
  EXPECT_EQ(indexer.spec.top_k, 3u);
  EXPECT_EQ(indexer.spec.local_blocks, 1u);
  EXPECT_EQ(indexer.spec.init_blocks, 0u);
  EXPECT_EQ(indexer.spec.index_heads, 2u);
  EXPECT_EQ(indexer.rope, attention(plan, 1).rope);
  EXPECT_EQ(attention(plan, 0).qk_norm->extent, QkNorm::Extent::kPerHead);
  EXPECT_EQ(mixer<DenseMlp>(plan, 0, 1).spec.activation.kind, Activation::kSwigluOai);
  EXPECT_EQ(experts(plan, 1).expert.activation.kind, Activation::kSwigluOai);
  EXPECT_EQ(experts(plan, 1).shared->spec.activation.limit, 7.f);
  file.remove_tensor("blk.1.indexer.q_proj.weight");
  EXPECT_THROW(make_plan(file, {}), Error);
}

// ---- branches side by side, ALiBi, learned positions ----

TEST_F(Planned, Phi2SharesOneNormAndHasABiasInItsHead) {
  const Plan plan = this->plan("phi2");
  EXPECT_TRUE(plan.layers[0].side_by_side);
  EXPECT_TRUE(plan.layers[0].sites[1].shares_norm);
  EXPECT_EQ(plan.head.output.bias.tensor, "output.bias");
  EXPECT_EQ(attention(plan, 0).rope->rotary_dim, 8u);
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kSplitHalf);
}

TEST_F(Planned, FalconHasOneNormOrGivesTheSecondToAttention) {
  const Plan small = plan("falcon");
  EXPECT_EQ(norm_of(small.layers[0].sites[0]), "blk.0.attn_norm.weight");
  EXPECT_TRUE(small.layers[0].sites[1].shares_norm);
  EXPECT_EQ(attention(small, 0).spec.kv_heads, 1u);
  const Plan large = plan("falcon-40b");
  EXPECT_TRUE(large.layers[0].side_by_side);
  EXPECT_EQ(norm_of(large.layers[0].sites[0]), "blk.0.attn_norm_2.weight");
  EXPECT_EQ(norm_of(large.layers[0].sites[1]), "blk.0.attn_norm.weight");
  EXPECT_FALSE(large.layers[0].sites[1].shares_norm);
}

TEST_F(Planned, BloomNormsItsEmbeddingsAndLeansOnAlibi) {
  const Plan plan = this->plan("bloom");
  EXPECT_EQ(plan.embedding.norm->bias.tensor, "token_embd_norm.bias");
  EXPECT_EQ(attention(plan, 0).spec.alibi_max_bias, 8.f);
  EXPECT_FALSE(attention(plan, 0).rope);
}

TEST_F(Planned, MptClampsAndLeansOnAlibiUnlessItLearnsPositions) {
  TinyCheckpoint& file = open("mpt");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(attention(plan, 0).clamp, 1.5f);
  EXPECT_EQ(attention(plan, 0).spec.alibi_max_bias, 8.f);
  EXPECT_FALSE(plan.final_norm->bias);
  file.remove("mpt.attention.max_alibi_bias");
  EXPECT_THROW(make_plan(file, {}), Error);
  file.add_tensor("position_embd.weight", {256, 96});
  EXPECT_EQ(make_plan(file, {}).embedding.position_rows, 256u);
}

TEST_F(Planned, GptNeoXRunsSideBySideOnTwoNormsUnlessToldOtherwise) {
  TinyCheckpoint& file = open("gptneox");
  const Plan plan = make_plan(file, {});
  EXPECT_TRUE(plan.layers[0].side_by_side);
  EXPECT_EQ(norm_of(plan.layers[0].sites[1]), "blk.0.ffn_norm.weight");
  EXPECT_EQ(attention(plan, 0).rope->rotary_dim, 8u);
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kSplitHalf);
  EXPECT_FALSE(this->plan("gptneox-sequential").layers[0].side_by_side);
}

TEST_F(Planned, OlmoNormsWithoutWeights) {
  const Plan plan = this->plan("olmo");
  EXPECT_EQ(plan.final_norm->spec.kind, NormKind::kLayer);
  EXPECT_FALSE(plan.final_norm->weight);
  EXPECT_TRUE(plan.layers[1].sites[1].norm);
  EXPECT_EQ(norm_of(plan.layers[1].sites[1]), "");
  EXPECT_EQ(attention(plan, 0).clamp, 1.2f);
  EXPECT_EQ(attention(plan, 0).rope->layout, RopeLayout::kInterleaved);
}

TEST_F(Planned, StarCoderLearnsPositionsAndHasOneKvHead) {
  const Plan plan = this->plan("starcoder");
  EXPECT_EQ(plan.embedding.position_rows, 128u);
  EXPECT_EQ(attention(plan, 0).spec.kv_heads, 1u);
  EXPECT_FALSE(attention(plan, 0).rope);
}

// ---- Gemma 4 ----

TEST_F(Planned, Gemma4HasHeadsOfTwoKinds) {
  const Plan plan = this->plan("gemma4");
  const Gqa &sliding = attention(plan, 0), &global = attention(plan, 2);
  EXPECT_EQ(sliding.spec.window, 8u);
  EXPECT_EQ(sliding.spec.head_dim, 16u);
  EXPECT_EQ(sliding.spec.kv_heads, 2u);
  EXPECT_EQ(sliding.rope->theta, 10000.f);
  EXPECT_EQ(sliding.rope->rotary_dim, 16u);
  EXPECT_EQ(sliding.rope->scaling, algorithm::RopeScaling());
  EXPECT_EQ(global.spec.window, 0u);
  EXPECT_EQ(global.spec.head_dim, 32u);
  EXPECT_EQ(global.spec.kv_heads, 1u);
  EXPECT_EQ(global.rope->theta, 1e6f);
  EXPECT_TRUE(std::holds_alternative<algorithm::FactorScaling>(global.rope->scaling));
  for (const Gqa* gqa : {&sliding, &global}) {
    EXPECT_EQ(gqa->spec.scale, 1.f);
    ASSERT_TRUE(gqa->value_norm);
    EXPECT_FALSE(gqa->value_norm->weight);
  }
  EXPECT_TRUE(sliding.value);
  EXPECT_FALSE(global.value);  // the raw keys
  EXPECT_EQ(plan.head.softcap, 3.f);
  EXPECT_EQ(plan.embedding.scale, 8.f);
}

TEST_F(Planned, Gemma4AddsARowPerLayerAndScalesTheStream) {
  const Plan plan = this->plan("gemma4");
  ASSERT_TRUE(plan.embedding.per_layer);
  EXPECT_EQ(plan.embedding.per_layer->width, 16u);
  EXPECT_EQ(plan.embedding.per_layer->table_scale, 4.f);
  EXPECT_EQ(plan.embedding.per_layer->projection_scale, 0.125f);
  EXPECT_NEAR(plan.embedding.per_layer->sum_scale, std::sqrt(0.5), 1e-7);
  ASSERT_EQ(plan.layers[3].sites.size(), 3u);
  EXPECT_EQ(mixer<PerLayerInput>(plan, 3, 2).index, 3u);
  EXPECT_EQ(plan.layers[3].sites[2].branch_norm->weight.tensor, "blk.3.post_norm.weight");
  EXPECT_FALSE(plan.layers[3].sites[2].norm);
  EXPECT_NEAR(plan.layers[3].scale, 1.18114, 1e-5);
}

TEST_F(Planned, Gemma4SharesKeysWithTheLastLayerOfTheSameKind) {
  TinyCheckpoint& file = open("gemma4-sharedkv");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(attention(plan, 2).source, std::nullopt);
  EXPECT_EQ(attention(plan, 3).source, 1u);
  EXPECT_EQ(attention(plan, 4).source, 1u);
  EXPECT_EQ(attention(plan, 5).source, 2u);
  EXPECT_FALSE(attention(plan, 5).key);
  EXPECT_TRUE(attention(plan, 2).value);
  // Projections that some files keep for those layers are not read, and not refused.
  file.add_tensor("blk.5.attn_k.weight", {32, 64});
  EXPECT_FALSE(attention(make_plan(file, {}), 5).key);
  file.set("gemma4.attention.shared_kv_layers", std::int64_t{4});  // no global layer has keys
  EXPECT_THROW(make_plan(file, {}), Error);
}

TEST_F(Planned, Gemma4MoeSumsADenseBlockAndExperts) {
  const Plan plan = this->plan("gemma4-moe");
  EXPECT_FALSE(plan.embedding.per_layer);
  const FfnSum& sum = mixer<FfnSum>(plan, 1, 1);
  ASSERT_EQ(sum.parts.size(), 2u);
  EXPECT_EQ(sum.parts[0].norm->weight.tensor, "blk.1.ffn_norm.weight");
  EXPECT_EQ(sum.parts[0].branch_norm->weight.tensor, "blk.1.post_ffw_norm_1.weight");
  EXPECT_EQ(sum.parts[1].norm->weight.tensor, "blk.1.pre_ffw_norm_2.weight");
  EXPECT_EQ(sum.parts[1].branch_norm->weight.tensor, "blk.1.post_ffw_norm_2.weight");
  EXPECT_EQ(plan.layers[1].sites[1].branch_norm->weight.tensor, "blk.1.post_ffw_norm.weight");
  const Moe& moe = std::get<Moe>(sum.parts[1].mixer);
  EXPECT_EQ(moe.gate.weight,
            (WeightRef{"blk.1.ffn_gate_up_exps.weight", View::strided_rows(48, 0, 24)}));
  EXPECT_EQ(moe.up.weight,
            (WeightRef{"blk.1.ffn_gate_up_exps.weight", View::strided_rows(48, 24, 48)}));
  EXPECT_EQ(moe.router_norm->weight.tensor, "blk.1.ffn_gate_inp.scale");
  EXPECT_NEAR(moe.router_scale, 1 / std::sqrt(48.0), 1e-7);
  EXPECT_TRUE(moe.routing.normalize);
  EXPECT_EQ(moe.expert_scale.tensor, "blk.1.ffn_down_exps.scale");
  EXPECT_EQ(moe.expert.activation.kind, Activation::kGeluTanh);
}

// ---- BERT ----

TEST_F(Planned, BertSeesBothWaysNormsSumsAndHasNoHead) {
  TinyCheckpoint& file = open("bert");
  const Plan plan = make_plan(file, {});
  EXPECT_FALSE(attention(plan, 0).spec.causal);
  EXPECT_FALSE(plan.layers[0].sites[0].norm);
  EXPECT_EQ(plan.layers[0].sites[0].sum_norm->weight.tensor, "blk.0.attn_output_norm.weight");
  EXPECT_EQ(plan.layers[0].sites[1].sum_norm->weight.tensor, "blk.0.layer_output_norm.weight");
  EXPECT_EQ(plan.embedding.token_type, (WeightRef{"token_types.weight", View::rows(0, 1)}));
  EXPECT_EQ(plan.embedding.positions.tensor, "position_embd.weight");
  EXPECT_TRUE(plan.embedding.norm);
  EXPECT_FALSE(plan.final_norm);
  EXPECT_FALSE(plan.head.output);
  EXPECT_THROW(make_plan(file, {.context = 129}), Error);
  file.set("bert.attention.causal", true);
  EXPECT_THROW(make_plan(file, {}), Error);
}

}  // namespace
}  // namespace lemma::model::arch
