// SPDX-License-Identifier: Apache-2.0
#include "model/plan_print.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/arch/arch.hpp"
#include "model/arch/tiny_checkpoint.hpp"

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

}  // namespace
}  // namespace lemma::model
