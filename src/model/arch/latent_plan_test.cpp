// SPDX-License-Identifier: Apache-2.0
// Plans of the families with latent, sparse and recurrent attention: the facts that are easy to get
// wrong, from the golden files and from altered copies of them. Numbers are facts of the models.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "lemma/error.hpp"
#include "model/arch/arch.hpp"
#include "model/arch/tiny_checkpoint.hpp"
#include "model/plan_cost.hpp"
#include "test_data.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::RopeLayout;
using algorithm::RopePlacement;
using algorithm::RopeScaling;
using algorithm::RouteScore;
using weights::Value;

template <typename M>
const M& mixer(const Plan& plan, std::size_t layer, std::size_t site = 0) {
  return std::get<M>(plan.layers.at(layer).sites.at(site).mixer);
}

double magnitude(double factor, double multiplier) {
  return 1 + 0.1 * multiplier * std::log(factor);
}

class LatentFamily : public ::testing::Test {
 protected:
  // An altered copy of a golden file; empty where there is no data.
  TinyCheckpoint& open(const std::string& variant) {
    if (const auto path = test::find_data("goldens/" + variant + "/model.gguf")) {
      file_ = weights::open_checkpoint(*path);
      copy_ = TinyCheckpoint(*file_);
    }
    return copy_;
  }
  std::string failure() const {
    try {
      make_plan(copy_, {});
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  void SetUp() override {
    LEMMA_TEST_DATA_OR_SKIP(folder, "goldens");
    ASSERT_FALSE(folder.empty());
  }

  std::unique_ptr<const weights::Checkpoint> file_;
  TinyCheckpoint copy_;
};

// ---- DeepSeek V2, V3, Mistral 4 ----

TEST_F(LatentFamily, DeepSeek2ScalesScoresByTheExpandedHead) {
  const Plan plan = make_plan(open("deepseek2-noq-mla"), {});
  const auto& mla = mixer<Mla>(plan, 0);
  EXPECT_EQ(mla.spec.nope_dim, 16u);
  EXPECT_EQ(mla.spec.rope_dim, 8u);
  EXPECT_EQ(mla.spec.value_dim, 16u);
  EXPECT_EQ(mla.spec.q_rank, 0u);
  EXPECT_FALSE(mla.query_down);
  const double m = magnitude(8, 0.707);
  EXPECT_NEAR(mla.spec.scale, m * m / std::sqrt(24.0), 1e-6);
  EXPECT_EQ(mla.rope->attention_factor, 1.f);
  EXPECT_EQ(mla.rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(mla.rope->placement, RopePlacement::kSuffix);
  EXPECT_TRUE(mla.key_up_transposed);
  EXPECT_EQ(mla.latent.weight, (WeightRef{"blk.0.attn_kv_a_mqa.weight", View::rows(0, 24)}));
  EXPECT_EQ(mla.rope_key.weight, (WeightRef{"blk.0.attn_kv_a_mqa.weight", View::rows(24, 32)}));
}

TEST_F(LatentFamily, DeepSeek2WithoutAMultiplierKeepsYarnsMagnitude) {
  open("deepseek2-noq-mla").remove("deepseek2.rope.scaling.yarn_log_multiplier");
  const Plan plan = make_plan(copy_, {});
  EXPECT_NEAR(mixer<Mla>(plan, 0).rope->attention_factor, magnitude(8, 1), 1e-6);
  EXPECT_NEAR(mixer<Mla>(plan, 0).spec.scale, 1 / std::sqrt(24.0), 1e-7);
  copy_.set("deepseek2.rope.scaling.attn_factor", 0.5);
  EXPECT_NE(failure().find("rope.scaling.attn_factor"), std::string::npos) << failure();
}

TEST_F(LatentFamily, DeepSeek2SplitsTheJointExpansionPerHead) {
  const Plan plan = make_plan(open("deepseek2-v2lite-kvb"), {});
  const auto& mla = mixer<Mla>(plan, 1);
  EXPECT_FALSE(mla.key_up_transposed);
  EXPECT_EQ(mla.key_up, (WeightRef{"blk.1.attn_kv_b.weight", View::strided_rows(32, 0, 16)}));
  EXPECT_EQ(mla.value_up, (WeightRef{"blk.1.attn_kv_b.weight", View::strided_rows(32, 16, 32)}));
  EXPECT_EQ(mla.spec.q_rank, 48u);
}

TEST_F(LatentFamily, DeepSeek2AsksTensorsNotTheLayerCount) {
  const Plan lite = make_plan(open("deepseek2-lite26"), {});
  EXPECT_EQ(lite.layers.size(), 26u);
  EXPECT_EQ(mixer<Mla>(lite, 25).query.weight.tensor, "blk.25.attn_q.weight");
}

TEST_F(LatentFamily, DeepSeekV2ScoresBySoftmaxAndV3BySigmoidWithCorrection) {
  const Plan two = make_plan(open("deepseek2-v2lite-kvb"), {});
  EXPECT_TRUE(std::holds_alternative<DenseMlp>(two.layers[0].sites[1].mixer));
  const auto& soft = mixer<Moe>(two, 1, 1);
  EXPECT_EQ(soft.routing.score, RouteScore::kSoftmax);
  EXPECT_FALSE(soft.routing.normalize);
  EXPECT_FALSE(soft.routing.correction);
  EXPECT_EQ(soft.shared->spec.hidden, 48u);  // two of 24

  TinyCheckpoint& file = open("deepseek2-v3-mla");
  const auto routing = [&] { return mixer<Moe>(make_plan(file, {}), 1, 1).routing; };
  EXPECT_EQ(routing().score, RouteScore::kSigmoid);
  EXPECT_TRUE(routing().correction);
  EXPECT_TRUE(routing().normalize);
  EXPECT_EQ(routing().scale, 2.5f);
  EXPECT_EQ(routing().groups, 4u);
  EXPECT_EQ(routing().kept_groups, 2u);
  EXPECT_EQ(routing().group_best, 2u);
  // Files of before the key: a correction tells V3.
  file.remove("deepseek2.expert_gating_func");
  EXPECT_EQ(routing().score, RouteScore::kSigmoid);
  file.remove_tensor("blk.1.exp_probs_b.bias");
  EXPECT_EQ(routing().score, RouteScore::kSoftmax);
  EXPECT_EQ(routing().group_best, 1u);
}

TEST_F(LatentFamily, Mistral4RaisesTheTemperature) {
  TinyCheckpoint& file = open("mistral4");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(mixer<Mla>(plan, 1).spec.temperature_scale, 0.1f);
  EXPECT_EQ(mixer<Mla>(plan, 1).spec.temperature_floor, 8u);
  EXPECT_NEAR(mixer<Mla>(plan, 0).rope->attention_factor, 1.0, 1e-6);  // m(1) / m(1)
  EXPECT_NEAR(mixer<Mla>(plan, 0).spec.scale, std::pow(magnitude(8, 1), 2) / std::sqrt(80.0), 1e-6);
  file.remove("mistral4.attention.temperature_length");
  EXPECT_EQ(mixer<Mla>(make_plan(file, {}), 1).spec.temperature_floor, 16u);
}

TEST_F(LatentFamily, BlocksThatPredictFurtherTokensMayBeLeftOut) {
  TinyCheckpoint& file = open("deepseek2-v3-mla");
  file.set("deepseek2.block_count", std::int64_t{3})
      .set("deepseek2.nextn_predict_layers", std::int64_t{1});
  EXPECT_EQ(make_plan(file, {}).layers.size(), 2u);
  EXPECT_TRUE(make_plan(file, {}).drafts.empty());
}

// ---- DeepSeek V3.2, GLM 5 ----

TEST_F(LatentFamily, DeepSeek32TurnsHalvesInItsIndexerOnly) {
  const Plan plan = make_plan(open("deepseek32"), {});
  const auto& mla = mixer<Mla>(plan, 1);
  EXPECT_EQ(mla.rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(mla.indexer->rope->layout, RopeLayout::kSplitHalf);
  EXPECT_EQ(mla.indexer->rope->placement, RopePlacement::kPrefix);
  EXPECT_EQ(mla.indexer->rope->scaling, mla.rope->scaling);
  EXPECT_EQ(mla.indexer->spec.top_k, 4u);
  EXPECT_EQ(mla.indexer->spec.heads, 8u);
  EXPECT_EQ(mla.indexer->key_norm.spec.kind, algorithm::NormKind::kLayer);
  EXPECT_EQ(mla.indexer->key_norm.spec.eps, 1e-6f);
  EXPECT_EQ(mla.indexer->key_norm.bias.tensor, "blk.1.indexer.k_norm.bias");
  EXPECT_EQ(mla.selection_source, 1u);
}

TEST_F(LatentFamily, GlmDsaTurnsNeighboursInItsIndexerToo) {
  const Plan plan = make_plan(open("glm-dsa"), {});
  EXPECT_EQ(mixer<Mla>(plan, 0).indexer->rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(mixer<Mla>(plan, 0).indexer->rope->placement, RopePlacement::kPrefix);
}

TEST_F(LatentFamily, GlmDsaSharesTheListOfTheNearestLayerThatChooses) {
  TinyCheckpoint& file = open("glm-dsa-shared");
  const auto sources = [&] {
    std::vector<std::uint32_t> found;
    const Plan plan = make_plan(file, {});
    for (std::size_t i = 0; i < plan.layers.size(); ++i)
      found.push_back(*mixer<Mla>(plan, i).selection_source);
    return found;
  };
  EXPECT_EQ(sources(), (std::vector<std::uint32_t>{0, 0, 2}));
  file.remove("glm-dsa.attention.indexer.types");  // the tensors say the same
  EXPECT_EQ(sources(), (std::vector<std::uint32_t>{0, 0, 2}));
  file.set("glm-dsa.attention.indexer.types", Value::Ints{0, 1, 1});
  EXPECT_NE(failure().find("first layer"), std::string::npos) << failure();
  file.set("glm-dsa.attention.indexer.types", Value::Ints{1, 1, 1});  // without its tensors
  EXPECT_NE(failure().find("blk.1.indexer"), std::string::npos) << failure();
  file.set("glm-dsa.attention.indexer.types", Value::Ints{1, 0, 0});  // with unused tensors
  EXPECT_NE(failure().find("blk.2.indexer"), std::string::npos) << failure();
}

// ---- DeepSeek V4 ----

TEST_F(LatentFamily, DeepSeek4CompressesByTheLayersRatio) {
  const Plan plan = make_plan(open("deepseek4"), {});
  const auto& raw = mixer<CompressedSparse>(plan, 0).spec;
  const auto& fine = mixer<CompressedSparse>(plan, 1).spec;
  const auto& coarse = mixer<CompressedSparse>(plan, 2).spec;
  EXPECT_EQ(raw.ratio, 0u);
  EXPECT_EQ(fine.ratio, 4u);
  EXPECT_TRUE(fine.overlap);
  EXPECT_EQ(fine.selection, algorithm::EntrySelection::kIndexer);
  EXPECT_EQ(coarse.ratio, 128u);
  EXPECT_FALSE(coarse.overlap);
  EXPECT_EQ(coarse.selection, algorithm::EntrySelection::kAll);
  EXPECT_EQ(fine.window, 8u);
  EXPECT_TRUE(fine.sinks);
  EXPECT_NEAR(fine.scale, 1 / std::sqrt(32.0), 1e-7);
  EXPECT_FALSE(mixer<CompressedSparse>(plan, 0).compressor);
  EXPECT_FALSE(mixer<CompressedSparse>(plan, 2).index_compressor);
}

TEST_F(LatentFamily, DeepSeek4ScalesTheRotationOfCompressingLayersOnly) {
  const Plan plan = make_plan(open("deepseek4"), {});
  const auto& raw = mixer<CompressedSparse>(plan, 0).spec.rope;
  const auto& fine = mixer<CompressedSparse>(plan, 1).spec.rope;
  EXPECT_EQ(raw.theta, 10000.f);
  EXPECT_EQ(raw.scaling, RopeScaling());
  EXPECT_EQ(fine.theta, 160000.f);
  EXPECT_TRUE(std::holds_alternative<algorithm::YarnScaling>(fine.scaling));
  EXPECT_EQ(fine.attention_factor, 1.f);
  for (const auto* rope : {&raw, &fine}) {
    EXPECT_EQ(rope->placement, RopePlacement::kSuffix);
    EXPECT_EQ(rope->layout, RopeLayout::kInterleaved);
  }
}

TEST_F(LatentFamily, DeepSeek4RoutesFirstLayersByATable) {
  const Plan plan = make_plan(open("deepseek4"), {});
  const auto& table = mixer<Moe>(plan, 1, 1);
  EXPECT_TRUE(table.routing.hashed);
  EXPECT_FALSE(table.routing.correction);
  EXPECT_EQ(table.hash_table.tensor, "blk.1.ffn_gate_tid2eid.weight");
  EXPECT_EQ(file_->at(table.hash_table.tensor).format, weights::Format::kI32);
  const auto& learned = mixer<Moe>(plan, 2, 1);
  EXPECT_FALSE(learned.routing.hashed);
  EXPECT_TRUE(learned.routing.correction);
  EXPECT_EQ(learned.routing.score, RouteScore::kSqrtSoftplus);
  EXPECT_EQ(learned.routing.sum_floor, 0x1p-14f);
  EXPECT_EQ(learned.routing.scale, 1.5f);
}

TEST_F(LatentFamily, DeepSeek4ClampsBeforeTheSiluAndSharedExpertsToo) {
  const auto limits = [](const Plan& plan) {
    const auto& moe = mixer<Moe>(plan, 2, 1);
    EXPECT_FALSE(moe.expert.activation.limit_after);
    return std::pair{moe.expert.activation.limit, moe.shared->spec.activation.limit};
  };
  EXPECT_EQ(limits(make_plan(open("deepseek4"), {})), (std::pair{2.f, 2.f}));
  EXPECT_EQ(limits(make_plan(open("deepseek4-clamp-shexp"), {})), (std::pair{0.7f, 0.3f}));
}

TEST_F(LatentFamily, DeepSeek4MixesStreams) {
  TinyCheckpoint& file = open("deepseek4");
  const Plan plan = make_plan(file, {});
  const auto& hyper = std::get<HyperConnections>(plan.residual);
  EXPECT_EQ(hyper.spec.streams, 4u);
  EXPECT_EQ(hyper.spec.iterations, 3u);
  EXPECT_EQ(hyper.leave.fn.tensor, "output_hc_fn.weight");
  EXPECT_EQ(plan.layers[3].sites[0].streams.base.tensor, "blk.3.hc_attn_base.weight");
  EXPECT_EQ(plan.layers[3].sites[1].streams.scale.tensor, "blk.3.hc_ffn_scale.weight");
  file.set("deepseek4.attention.compress_ratios", Value::Ints{0, 4, 128});
  EXPECT_NE(failure().find("compress_ratios"), std::string::npos) << failure();
  file.set("deepseek4.attention.compress_ratios", Value::Ints{0, 4, 128, 4, 0});  // one to spare
  EXPECT_EQ(failure(), "");
  file.set("deepseek4.attention.value_length", std::int64_t{16});
  EXPECT_NE(failure().find("value_length"), std::string::npos) << failure();
}

// ---- Qwen 3 Next, Qwen 3.5 ----

TEST_F(LatentFamily, Qwen3NextAttendsInEveryFourthLayer) {
  TinyCheckpoint& file = open("qwen3next");
  const Plan plan = make_plan(file, {});
  const auto& net = mixer<GatedDeltaNet>(plan, 0);
  EXPECT_EQ(net.spec.key_heads, 2u);
  EXPECT_EQ(net.spec.value_heads, 4u);
  EXPECT_EQ(net.spec.key_dim, 64u);
  EXPECT_EQ(net.spec.value_dim, 64u);
  EXPECT_EQ(net.spec.mapping, algorithm::KeyHeads::kGrouped);
  EXPECT_EQ(net.beta.weight, (WeightRef{"blk.0.ssm_ba.weight", View::strided_rows(4, 0, 2)}));
  EXPECT_EQ(net.alpha.weight, (WeightRef{"blk.0.ssm_ba.weight", View::strided_rows(4, 2, 4)}));
  const auto& gqa = mixer<Gqa>(plan, 3);
  EXPECT_EQ(gqa.query.weight, (WeightRef{"blk.3.attn_q.weight", View::strided_rows(64, 0, 32)}));
  EXPECT_EQ(gqa.gate.weight, (WeightRef{"blk.3.attn_q.weight", View::strided_rows(64, 32, 64)}));
  EXPECT_EQ(gqa.rope->rotary_dim, 16u);
  EXPECT_EQ(gqa.rope->layout, RopeLayout::kSplitHalf);
  EXPECT_EQ(plan.layers[0].sites[1].norm->weight.tensor, "blk.0.post_attention_norm.weight");
  const auto& moe = mixer<Moe>(plan, 0, 1);
  EXPECT_TRUE(moe.routing.normalize);
  EXPECT_EQ(moe.shared_gate.tensor, "blk.0.ffn_gate_inp_shexp.weight");
  EXPECT_EQ(moe.shared->spec.hidden, 32u);
  file.set("qwen3next.full_attention_interval", std::int64_t{2});
  EXPECT_NE(failure().find("blk.1.attn_"), std::string::npos) << failure();
}

TEST_F(LatentFamily, Qwen3NextCutsTheOldJointMatrixPerKeyHead) {
  const Plan plan = make_plan(open("qwen3next-legacy-ssm-in"), {});
  const auto& net = mixer<GatedDeltaNet>(plan, 0);
  ASSERT_EQ(net.channels.size(), 3u);
  const auto part = [](std::uint64_t begin, std::uint64_t end) {
    return WeightRef{"blk.0.ssm_in.weight", View::strided_rows(384, begin, end)};
  };
  EXPECT_EQ(net.channels[0].weight, part(0, 64));
  EXPECT_EQ(net.channels[1].weight, part(64, 128));
  EXPECT_EQ(net.channels[2].weight, part(128, 256));
  EXPECT_EQ(net.gate.weight, part(256, 384));
  EXPECT_EQ(net.convolutions[2], (WeightRef{"blk.0.ssm_conv1d.weight", View::rows(256, 512)}));
}

TEST_F(LatentFamily, Qwen35TilesKeyHeadsAndTakesTurnsInSections) {
  TinyCheckpoint& file = open("qwen35");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(mixer<GatedDeltaNet>(plan, 0).spec.mapping, algorithm::KeyHeads::kTiled);
  EXPECT_EQ(mixer<GatedDeltaNet>(plan, 0).alpha.weight.tensor, "blk.0.ssm_alpha.weight");
  EXPECT_EQ(mixer<Gqa>(plan, 3).rope->sections, (std::array<std::uint32_t, 3>{3, 3, 2}));
  EXPECT_TRUE(mixer<Gqa>(plan, 3).rope->interleaved_sections);
  EXPECT_TRUE(std::holds_alternative<DenseMlp>(plan.layers[0].sites[1].mixer));
  file.set("qwen35.rope.dimension_sections", Value::Ints{2, 2, 2, 2});
  EXPECT_NE(failure().find("dimension_sections"), std::string::npos) << failure();
  const Plan experts = make_plan(open("qwen35moe"), {});
  EXPECT_TRUE(mixer<Moe>(experts, 3, 1).shared_gate);
}

// ---- Kimi Linear, Ling 3 ----

TEST_F(LatentFamily, KimiLinearTurnsNothing) {
  TinyCheckpoint& file = open("kimi-linear");
  const Plan plan = make_plan(file, {});
  const auto& kda = mixer<Kda>(plan, 0);
  EXPECT_EQ(kda.spec.lower_bound, 0.f);
  EXPECT_EQ(kda.forget_down.weight.tensor, "blk.0.ssm_f_a.weight");
  EXPECT_EQ(kda.gate.weight.tensor, "blk.0.ssm_g_b.weight");
  EXPECT_EQ(kda.channels.size(), 3u);
  EXPECT_FALSE(mixer<Mla>(plan, 3).rope);
  EXPECT_FALSE(mixer<Mla>(plan, 3).spec.use_rope);
  EXPECT_EQ(mixer<Mla>(plan, 3).spec.rope_dim, 8u);
  EXPECT_TRUE(mixer<Moe>(plan, 1, 1).routing.normalize);
  EXPECT_TRUE(std::holds_alternative<DenseMlp>(plan.layers[0].sites[1].mixer));
}

TEST_F(LatentFamily, BailingMoe3BoundsDecayAndGatesHeads) {
  TinyCheckpoint& file = open("bailingmoe3");
  const Plan plan = make_plan(file, {});
  const auto& kda = mixer<Kda>(plan, 0);
  EXPECT_EQ(kda.spec.lower_bound, -5.f);
  EXPECT_FALSE(kda.forget_down);
  const auto& mla = mixer<Mla>(plan, 3);
  EXPECT_TRUE(mla.gate_per_head);
  EXPECT_TRUE(mla.spec.output_gate);
  EXPECT_EQ(mla.rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(mla.rope->theta, 6e6f);
  file.set("bailingmoe3.kda.safe_gate", false);
  EXPECT_NE(failure().find("kda.safe_gate"), std::string::npos) << failure();
}

TEST_F(LatentFamily, BailingMoe3CapsTheSiluLayerByLayer) {
  TinyCheckpoint& file = open("bailingmoe3");
  const Plan plan = make_plan(file, {});
  const auto cap = [](const algorithm::ActivationSpec& activation) {
    EXPECT_EQ(activation.limit_after, activation.limit > 0.f);
    return activation.limit;
  };
  std::vector<float> experts, shared;
  for (std::size_t i = 1; i < 4; ++i) {
    experts.push_back(cap(mixer<Moe>(plan, i, 1).expert.activation));
    shared.push_back(cap(mixer<Moe>(plan, i, 1).shared->spec.activation));
  }
  EXPECT_EQ(experts, (std::vector<float>{1.f, 1.5f, 0.f}));
  EXPECT_EQ(shared, (std::vector<float>{0.8f, 0.f, 1.2f}));
  EXPECT_EQ(mixer<Moe>(plan, 1, 1).routing.group_best, 2u);
  file.set("bailingmoe3.swiglu_clamp_exp", Value::Floats{1.0, 1.0, 1.0, 1.0});  // a dense layer's
  EXPECT_NE(failure().find("swiglu_clamp_exp"), std::string::npos) << failure();
  file.set("bailingmoe3.swiglu_clamp_exp", Value::Floats{0.0, 1.0});
  EXPECT_NE(failure().find("swiglu_clamp_exp"), std::string::npos) << failure();
}

}  // namespace
}  // namespace lemma::model::arch
