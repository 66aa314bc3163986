// SPDX-License-Identifier: Apache-2.0
// Plans with draft blocks: what is a block's own, what is the model's, and files that do not fit.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "lemma/error.hpp"
#include "model/arch/arch.hpp"
#include "model/arch/draft_file.hpp"
#include "model/arch/tiny_checkpoint.hpp"
#include "model/plan_cost.hpp"
#include "model/plan_print.hpp"
#include "test_data.hpp"

namespace lemma::model::arch {
namespace {

using Reads = DraftBlock::Reads;

class Drafts : public ::testing::Test {
 protected:
  void SetUp() override {
    LEMMA_TEST_DATA_OR_SKIP(folder, "goldens");
    ASSERT_FALSE(folder.empty());
  }
  /// An altered copy of a golden file; empty where there is no data.
  static TinyCheckpoint open(const std::string& variant) {
    const auto path = test::find_data("goldens/" + variant + "/model.gguf");
    return path ? TinyCheckpoint(*weights::open_checkpoint(*path)) : TinyCheckpoint();
  }
  /// `file` with a draft block that is like its last layer, behind it.
  static TinyCheckpoint with_draft(TinyCheckpoint file, std::uint64_t width = 64) {
    const std::string name = file.metadata().string("general.architecture");
    const std::uint32_t layers = file.metadata().u32(name + ".block_count");
    const std::string last = "blk." + std::to_string(layers - 1) + ".";
    const std::string block = "blk." + std::to_string(layers) + ".";
    const auto tensors = file.tensors();
    for (const weights::TensorInfo& tensor : tensors)
      if (tensor.name.starts_with(last))
        file.add_tensor(block + tensor.name.substr(last.size()), tensor.shape, tensor.format);
    for (const char* norm : {"enorm", "hnorm", "shared_head_norm"})
      file.add_tensor(block + "nextn." + norm + ".weight", {width});
    file.add_tensor(block + "nextn.eh_proj.weight", {width, 2 * width});
    file.set(name + ".block_count", std::int64_t{layers} + 1);
    file.set(name + ".nextn_predict_layers", std::int64_t{1});
    return file;
  }
  /// The support file of DeepSeek V4: a draft block and nothing else.
  static TinyCheckpoint support_file(std::uint64_t width) {
    TinyCheckpoint file;
    file.set("general.architecture", std::string("deepseek4_mtp_support"));
    const TinyCheckpoint model = open("deepseek4-hash");
    for (const weights::TensorInfo& tensor : model.tensors())
      if (tensor.name.starts_with("blk.0.") && tensor.name.find("tid2eid") == std::string::npos)
        file.add_tensor("mtp.0." + tensor.name.substr(6), tensor.shape, tensor.format);
    for (const char* norm : {"enorm", "hnorm", "norm"})
      file.add_tensor("mtp.0." + std::string(norm) + ".weight", {width});
    for (const char* half : {"e_proj", "h_proj"})
      file.add_tensor("mtp.0." + std::string(half) + ".weight", {width, width});
    for (const char* part : {"fn", "base", "scale"})
      file.add_tensor("mtp.0.hc_head_" + std::string(part) + ".weight",
                      model.find("output_hc_" + std::string(part) + ".weight")->shape);
    return file;
  }
  static std::unique_ptr<const weights::Checkpoint> joined(const TinyCheckpoint& model,
                                                           const TinyCheckpoint& draft) {
    return join_draft(std::make_unique<TinyCheckpoint>(model),
                      std::make_unique<TinyCheckpoint>(draft));
  }
  static std::string refusal(const TinyCheckpoint& model, const TinyCheckpoint& draft) {
    try {
      make_plan(*joined(model, draft), {});
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
};

#define EXPECT_NAMES(text, word) EXPECT_NE((text).find(word), std::string::npos) << (text)

TEST_F(Drafts, OfGlm4MoeReadTheRowThatEntersTheHead) {
  const Plan plan = make_plan(open("glm4moe-nextn"), {});
  ASSERT_EQ(plan.drafts.size(), 1u);
  const DraftBlock& draft = plan.drafts[0];
  EXPECT_EQ(draft.reads, Reads::kHidden);
  EXPECT_EQ(draft.table, plan.embedding.table);
  EXPECT_EQ(draft.output.weight, plan.head.output.weight);
  EXPECT_EQ(draft.token.weight, (WeightRef{"blk.2.nextn.eh_proj.weight", View::columns(0, 64)}));
  EXPECT_EQ(draft.row.weight, (WeightRef{"blk.2.nextn.eh_proj.weight", View::columns(64, 128)}));
  EXPECT_EQ(draft.token_norm.weight.tensor, "blk.2.nextn.enorm.weight");
  EXPECT_EQ(draft.row_norm.weight.tensor, "blk.2.nextn.hnorm.weight");
  EXPECT_EQ(draft.final_norm.weight.tensor, "blk.2.nextn.shared_head_norm.weight");
  EXPECT_TRUE(std::holds_alternative<Moe>(draft.layer.sites.at(1).mixer));
}

TEST_F(Drafts, MayHaveAnEmbeddingAndAHeadOfTheirOwn) {
  TinyCheckpoint file = open("glm4moe-nextn");
  file.add_tensor("blk.2.nextn.embed_tokens.weight", {512, 64})
      .add_tensor("blk.2.nextn.shared_head_head.weight", {512, 64})
      .remove_tensor("blk.2.nextn.shared_head_norm.weight");
  const Plan plan = make_plan(file, {});
  EXPECT_EQ(plan.drafts[0].table.tensor, "blk.2.nextn.embed_tokens.weight");
  EXPECT_EQ(plan.drafts[0].output.weight.tensor, "blk.2.nextn.shared_head_head.weight");
  EXPECT_EQ(plan.drafts[0].final_norm.weight.tensor, "output_norm.weight");
  file.add_tensor("blk.2.nextn.gate.weight", {64});
  EXPECT_THROW(make_plan(file, {}), Error);  // a tensor that no draft block has
}

TEST_F(Drafts, MustBeWhole) {
  TinyCheckpoint file = open("glm4moe-nextn");
  file.remove_tensor("blk.2.nextn.enorm.weight");
  EXPECT_THROW(make_plan(file, {}), Error);
}

TEST_F(Drafts, OfTheLatentAndHybridFamiliesAreLikeTheLayersBeforeThem) {
  for (const char* variant :
       {"deepseek2-v3-mla", "deepseek32", "glm-dsa", "qwen3next", "qwen35", "qwen35moe"}) {
    SCOPED_TRACE(variant);
    TinyCheckpoint file = with_draft(open(variant));
    const Plan plan = make_plan(file, {});
    ASSERT_EQ(plan.drafts.size(), 1u);
    const Site& own = plan.drafts[0].layer.sites.at(0);
    EXPECT_EQ(own.mixer.index(), plan.layers.back().sites.at(0).mixer.index());
    EXPECT_EQ(slots_of(plan.drafts[0]).size(),
              variant == std::string("deepseek32") || variant == std::string("glm-dsa") ? 3u : 2u);
    if (const auto* mla = std::get_if<Mla>(&own.mixer); mla && mla->indexer) {
      EXPECT_EQ(mla->selection_source, plan.layers.size());
    }
  }
}

TEST_F(Drafts, OfDeepSeek4ReadEveryStreamForItself) {
  const TinyCheckpoint model = open("deepseek4-hash");
  const auto width = static_cast<std::uint64_t>(model.metadata().u32("deepseek4.embedding_length"));
  const auto file = joined(model, support_file(width));
  const Plan plan = make_plan(*file, {});
  const std::string block = "blk." + std::to_string(plan.layers.size()) + ".";
  ASSERT_EQ(plan.drafts.size(), 1u);
  const DraftBlock& draft = plan.drafts[0];
  EXPECT_EQ(draft.reads, Reads::kStream);
  EXPECT_EQ(draft.token.weight, (WeightRef{block + "nextn.e_proj.weight"}));
  EXPECT_EQ(draft.row.weight, (WeightRef{block + "nextn.h_proj.weight"}));
  EXPECT_EQ(draft.leave.fn.tensor, block + "nextn.hc_head_fn.weight");
  EXPECT_EQ(draft.final_norm.weight.tensor, block + "nextn.shared_head_norm.weight");
  EXPECT_EQ(draft.output.weight, plan.head.output.weight);
  const auto& sparse = std::get<CompressedSparse>(draft.layer.sites.at(0).mixer);
  EXPECT_EQ(sparse.spec.ratio, 0u);  // a window only
  EXPECT_FALSE(std::get<Moe>(draft.layer.sites.at(1).mixer).routing.hashed);
  EXPECT_GT(cost_of(plan, *file, {}).draft_weight_bytes, 0u);
}

TEST_F(Drafts, FromASecondFileAreThoseOfOneFile) {
  const TinyCheckpoint whole = open("glm4moe-nextn"), trunk = open("glm4moe");
  const Plan one = make_plan(whole, {}), two = make_plan(*joined(trunk, whole), {});
  EXPECT_EQ(to_json(one), to_json(two));
}

TEST_F(Drafts, FromAFileOfAnotherModelAreRefusedWithWhatDiffers) {
  const TinyCheckpoint trunk = open("glm4moe");
  EXPECT_NAMES(refusal(trunk, open("qwen3next")), "architecture is 'qwen3next'");
  EXPECT_NAMES(refusal(trunk, trunk), "no draft block");
  EXPECT_NAMES(refusal(open("glm4moe-nextn"), open("glm4moe-nextn")), "of its own");
  TinyCheckpoint draft = open("glm4moe-nextn");
  draft.set("glm4moe.embedding_length", std::int64_t{128});
  EXPECT_NAMES(refusal(trunk, draft), "glm4moe.embedding_length");
  draft = open("glm4moe-nextn");
  draft.remove_tensor("token_embd.weight").add_tensor("token_embd.weight", {500, 64});
  EXPECT_NAMES(refusal(trunk, draft), "500 rows");
  const TinyCheckpoint four = open("deepseek4-hash");
  EXPECT_NAMES(refusal(four, support_file(16)), "width is 16");
  EXPECT_NAMES(refusal(trunk, support_file(16)), "deepseek4_mtp_support");
}

TEST_F(Drafts, ThatNoProgramCouldBeAreRefused) {
  const Plan good = make_plan(open("glm4moe-nextn"), {});
  const auto refused = [&](const std::function<void(Plan&)>& change) {
    Plan plan = good;
    change(plan);
    try {
      plan.validate();
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refused([](Plan&) {}), "");
  EXPECT_NAMES(refused([](Plan& plan) { plan.drafts[0].row = {}; }), "both projections");
  EXPECT_NAMES(refused([](Plan& plan) { plan.drafts[0].leave.fn = {"fn"}; }), "draft block 0");
  EXPECT_NAMES(refused([](Plan& plan) {
                 auto& attention = std::get<Gqa>(plan.drafts[0].layer.sites.at(0).mixer);
                 attention.source = 1;
                 attention.key = attention.value = {};
               }),
               "not its own");
  EXPECT_NAMES(refused([](Plan& plan) { plan.drafts[0].layer.sites.at(1).mixer = DenseMlp{}; }),
               "layer 2, dense_mlp");
}

TEST_F(Drafts, ArePrintedWithWhatTheyShare) {
  const std::string text = to_text(make_plan(open("glm4moe-nextn"), {}));
  EXPECT_NAMES(text, "draft block 0");
  EXPECT_NAMES(text, "the row that enters the head");
  EXPECT_NAMES(text, "the model's head");
}

}  // namespace
}  // namespace lemma::model::arch
