// SPDX-License-Identifier: Apache-2.0
#include "model/plan_print.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/arch/arch.hpp"
#include "model/arch/tiny_checkpoint.hpp"
#include "model/plan_cost.hpp"

namespace lemma::model {
namespace {

using arch::TinyCheckpoint;

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

TEST(PlanText, FoldsEqualLayers) {
  const std::string text = to_text(make_plan(TinyCheckpoint::llama(12), {}));
  EXPECT_EQ(count(text, "layers 0-11:"), 1u) << text;
  EXPECT_EQ(count(text, "attention 4 heads on 2 KV heads of 16"), 1u) << text;
}

TEST(PlanText, KeepsLayersApartThatDifferAnywhere) {
  Plan plan = make_plan(TinyCheckpoint::llama(4), {});
  std::get<Gqa>(plan.layers[2].sites[0].mixer).output.bias.tensor = "blk.2.attn_output.bias";
  const std::string text = to_text(plan);
  EXPECT_NE(text.find("layers 0-1:"), std::string::npos) << text;
  EXPECT_NE(text.find("layer 2:"), std::string::npos) << text;
  EXPECT_NE(text.find("layer 3: as layers 0-1"), std::string::npos) << text;
}

TEST(PlanText, ShowsNoControlBytesOfAName) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(1);
  tiny.set("general.name", std::string("red\x1b[31m"));
  EXPECT_EQ(to_text(make_plan(tiny, {})).find('\x1b'), std::string::npos);
}

TEST(PlanJson, ParsesBackWithEveryField) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(2);
  tiny.set("general.name", std::string("tiny")).set("llama.rope.scaling.type", std::string("yarn"));
  tiny.set("llama.rope.scaling.factor", 4.0);
  const auto json = nlohmann::json::parse(to_json(make_plan(tiny, {})));
  EXPECT_EQ(json.at("architecture"), "llama");
  EXPECT_EQ(json.at("name"), "tiny");
  EXPECT_EQ(json.at("vocabulary"), 512);
  ASSERT_EQ(json.at("layers").size(), 2u);
  const auto& site = json.at("layers")[1].at("sites")[0];
  EXPECT_EQ(site.at("norm").at("weight").at("tensor"), "blk.1.attn_norm.weight");
  EXPECT_EQ(site.at("mixer").at("kv_heads"), 2);
  EXPECT_EQ(site.at("mixer").at("scale"), 0.25);
  EXPECT_EQ(site.at("mixer").at("rope").at("layout"), "interleaved");
  EXPECT_EQ(site.at("mixer").at("rope").at("scaling").at("kind"), "yarn");
  EXPECT_EQ(site.at("mixer").at("rope").at("scaling").at("original_context"), 256);
  EXPECT_TRUE(site.at("mixer").at("qk_norm").is_null());
  EXPECT_EQ(json.at("layers")[1].at("sites")[1].at("mixer").at("activation").at("kind"), "silu");
  EXPECT_EQ(json.at("head").at("output").at("weight").at("tensor"), "token_embd.weight");
}

TEST(PlanJson, WritesAFloatAsItsShortestDecimal) {
  Plan plan = make_plan(TinyCheckpoint::llama(1), {});
  plan.head.scale = 0.1f;
  EXPECT_NE(to_json(plan).find("\"scale\": 0.1,"), std::string::npos);
}

TEST(PlanJson, WritesViews) {
  Plan plan = make_plan(TinyCheckpoint::llama(1), {});
  std::get<Gqa>(plan.layers[0].sites[0].mixer).key.weight.view = View::strided_rows(32, 16, 32);
  const auto json = nlohmann::json::parse(to_json(plan));
  const auto& key = json.at("layers")[0].at("sites")[0].at("mixer").at("key").at("weight");
  EXPECT_EQ(key.at("view"), "strided_rows");
  EXPECT_EQ(key.at("begin"), 16);
  EXPECT_EQ(key.at("end"), 32);
  EXPECT_EQ(key.at("stride"), 32);
}

TEST(PlanJson, IsSoundForANameThatIsNotUtf8) {
  TinyCheckpoint tiny = TinyCheckpoint::llama(1);
  tiny.set("general.name", std::string("\xff\xfe"));
  EXPECT_TRUE(nlohmann::json::accept(to_json(make_plan(tiny, {}))));
}

// A plan that has every word once, with weights by made-up names.
Plan plan_of_all_words() {
  int next = 0;
  const auto weight = [&] { return WeightRef{fmt::format("w{}", next++), {}}; };
  const auto linear = [&] { return Linear{weight(), {}}; };
  const auto norm = [&] { return Norm{.spec = {}, .weight = weight(), .bias = {}}; };
  Plan plan = make_plan(TinyCheckpoint::llama(1), {});
  plan.embedding.token_type = weight();
  plan.embedding.per_layer =
      Embedding::PerLayer{.width = 4, .table = weight(), .projection = linear(), .norm = norm()};
  HyperConnections hyper{.spec = {.streams = 3, .width = 64, .iterations = 20}};
  hyper.leave = {weight(), weight(), weight()};
  plan.residual = hyper;

  Gqa gqa = std::get<Gqa>(plan.layers[0].sites[0].mixer);
  gqa.gate = linear();
  gqa.value_norm = norm();
  gqa.spec.sinks = true;
  gqa.sinks = weight();
  gqa.indexer = BlockIndexer{.query = linear(),
                             .key = linear(),
                             .query_norm = norm(),
                             .key_norm = norm(),
                             .rope = gqa.rope};
  gqa.indexer->spec.block_size = 128;

  Mla mla;
  mla.spec.q_rank = 12;
  mla.query_down = linear();
  mla.query_norm = norm();
  mla.query = linear();
  mla.latent = linear();
  mla.rope_key = linear();
  mla.latent_norm = norm();
  mla.rope = gqa.rope;
  mla.key_up = weight();
  mla.value_up = weight();
  mla.gate = linear();
  mla.output = linear();
  mla.indexer = TokenIndexer{.query = linear(),
                             .key = linear(),
                             .weights = linear(),
                             .key_norm = norm(),
                             .kpool = 4,
                             .pool_gate = linear(),
                             .pool_positions = weight()};
  mla.selection_source = 0;

  CompressedSparse sparse;
  sparse.spec.ratio = 4;
  sparse.spec.output_groups = 1;
  sparse.spec.selection = algorithm::EntrySelection::kIndexer;
  sparse.query_down = linear();
  sparse.query_norm = norm();
  sparse.query = linear();
  sparse.row = linear();
  sparse.row_norm = norm();
  sparse.sinks = weight();
  sparse.compressor = {linear(), linear(), weight(), weight()};
  sparse.index_compressor = {linear(), linear(), weight(), weight()};
  sparse.index_query = linear();
  sparse.index_weights = linear();
  sparse.output_down = weight();
  sparse.output = linear();

  GatedDeltaNet net;
  net.channels = {linear()};
  net.convolutions = {weight()};
  net.alpha = linear();
  Kda kda;
  kda.channels = {linear(), linear(), linear()};
  kda.convolutions = {weight(), weight(), weight()};
  kda.forget_down = linear();
  kda.forget = linear();
  kda.gate_down = linear();
  for (auto* part : {&net.beta, &net.gate, &net.output, &kda.beta, &kda.gate, &kda.output})
    *part = linear();
  for (auto* part : {&net.rate, &net.dt_bias, &net.norm, &kda.rate, &kda.dt_bias, &kda.norm})
    *part = weight();

  const DenseMlp dense = std::get<DenseMlp>(plan.layers[0].sites[1].mixer);
  Moe moe;
  moe.routing = {.experts = 8, .chosen = 2, .groups = 4, .kept_groups = 2};
  moe.expert = dense.spec;
  for (auto* part : {&moe.router, &moe.gate, &moe.up, &moe.down, &moe.latent_down, &moe.latent_up})
    *part = linear();
  for (auto* part : {&moe.correction, &moe.expert_scale, &moe.hash_table, &moe.shared_gate})
    *part = weight();
  moe.router_norm = norm();
  moe.router_scale = 0.5f;
  moe.latent_norm = norm();
  moe.shared = dense;
  FfnSum sum;
  sum.parts.push_back({.norm = norm(), .mixer = dense, .branch_norm = norm()});
  sum.parts.push_back({.norm = norm(), .mixer = moe, .branch_norm = norm()});
  PerLayerInput input{.width = 4, .gate = linear(), .output = linear()};

  std::vector<Site> sites;
  for (const Mixer& mixer : {Mixer(gqa), Mixer(mla), Mixer(sparse), Mixer(net), Mixer(kda),
                             Mixer(dense), Mixer(moe), Mixer(sum), Mixer(input)}) {
    Site site;
    site.norm = norm();
    site.mixer = mixer;
    site.streams = {weight(), weight(), weight()};
    site.block_mix = {weight(), weight()};
    sites.push_back(std::move(site));
  }
  plan.layers[0].sites = std::move(sites);
  return plan;
}

TEST(PlanJson, NamesEveryWeightOfEveryWord) {
  const Plan plan = plan_of_all_words();
  const std::string text = to_json(plan);
  const auto weights = weights_of(plan);
  EXPECT_GT(weights.size(), 90u);
  for (const WeightRef* weight : weights)
    EXPECT_NE(text.find("\"" + weight->tensor + "\""), std::string::npos) << weight->tensor;
}

TEST(PlanJson, SaysTheKindOfEveryMixer) {
  const auto json = nlohmann::json::parse(to_json(plan_of_all_words()));
  std::vector<std::string> kinds;
  for (const auto& site : json.at("layers")[0].at("sites"))
    kinds.push_back(site.at("mixer").at("kind"));
  EXPECT_EQ(kinds,
            (std::vector<std::string>{"gqa", "mla", "compressed_sparse", "gated_delta_net", "kda",
                                      "dense_mlp", "moe", "ffn_sum", "per_layer_input"}));
  EXPECT_EQ(json.at("residual").at("kind"), "hyper_connections");
  EXPECT_EQ(json.at("residual").at("streams"), 3);
}

TEST(PlanText, SaysWhatEveryMixerIs) {
  const std::string text = to_text(plan_of_all_words());
  for (const char* words :
       {"attention 4 heads", "blocks of 128 keys", "latent attention", "query latent 12",
        "compressed sparse attention", "an entry for 4 tokens", "gated delta net", "KDA",
        "2 of 8 experts, softmax", "best 2 of 4 groups", "times 0.5", "shared 64 -> 80",
        "the sum of", "own row of 4", "hyper-connections: 3 streams", "a row of 4 for each layer"})
    EXPECT_NE(text.find(words), std::string::npos) << words << " is missing from\n" << text;
}

TEST(PlanText, FoldsLayersThatDifferInTheirRowOnly) {
  Plan plan = make_plan(TinyCheckpoint::llama(3), {});
  for (std::uint32_t i = 0; i < 3; ++i)
    plan.layers[i].sites.push_back({.mixer = PerLayerInput{.width = 4, .index = i}});
  EXPECT_NE(to_text(plan).find("layers 0-2:"), std::string::npos) << to_text(plan);
}

}  // namespace
}  // namespace lemma::model
