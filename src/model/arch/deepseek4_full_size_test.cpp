// SPDX-License-Identifier: Apache-2.0
// DeepSeek V4 Flash at full size, from a file that has all keys and tensors of the real one and no
// data: its plan builds, validates, costs memory and prints, so a user with the real file can load
// it. The file is sparse and takes a few hundred kB of disk. The model has 284e9 parameters, 13e9
// of them used for a token.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "model/arch/arch.hpp"
#include "model/plan_cost.hpp"
#include "model/plan_print.hpp"
#include "weights/gguf/writer.hpp"

namespace lemma::model::arch {
namespace {

using weights::Format;
using weights::gguf::Writer;

constexpr std::uint64_t kWidth = 4096, kVocabulary = 129280, kHeads = 64, kHead = 512;
constexpr std::uint64_t kQueryRank = 1024, kGroups = 8, kOutputRank = 1024, kStreams = 4;
constexpr std::uint64_t kExperts = 256, kChosen = 6, kHidden = 2048, kIndexHeads = 64;
constexpr std::uint64_t kIndexDim = 128, kContext = 1u << 20;
constexpr std::uint32_t kLayers = 43, kHashed = 3;

// Two layers with their window only, then ratio 4 and 128 by turns; one more for a block that
// predicts further tokens, which the file does not have.
std::vector<std::int32_t> ratios() {
  std::vector<std::int32_t> out;
  for (std::uint32_t i = 0; i < kLayers; ++i) out.push_back(i < 2 ? 0 : i % 2 == 0 ? 4 : 128);
  out.push_back(0);
  return out;
}

/// The keys and tensors of the model, written without data.
class FullSizeFile {
 public:
  FullSizeFile() {
    keys();
    tensor("token_embd.weight", Format::kF16, {kVocabulary, kWidth});
    tensor("output_norm.weight", Format::kF32, {kWidth});
    tensor("output.weight", Format::kQ8_0, {kVocabulary, kWidth});
    streams("output_hc", kStreams, 1);
    const std::vector<std::int32_t> ratio = ratios();
    for (std::uint32_t i = 0; i < kLayers; ++i) {
      const std::string block = "blk." + std::to_string(i) + ".";
      attention(block);
      if (ratio[i] != 0) compression(block, static_cast<std::uint64_t>(ratio[i]));
      experts(block, i < kHashed);
    }
    const std::vector<std::byte> header = writer_.header();
    folder_ =
        std::filesystem::temp_directory_path() / ("lemma_full_size_" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder_);
    std::ofstream out(path(), std::ios::binary);
    out.write(reinterpret_cast<const char*>(header.data()),
              static_cast<std::streamsize>(header.size()));
    out.close();
    std::filesystem::resize_file(path(), header.size() + data_);
  }
  ~FullSizeFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  FullSizeFile(const FullSizeFile&) = delete;
  FullSizeFile& operator=(const FullSizeFile&) = delete;

  std::filesystem::path path() const { return folder_ / "model.gguf"; }

 private:
  void key(const std::string& suffix, std::uint64_t value) {
    writer_.add("deepseek4." + suffix, static_cast<std::uint32_t>(value));
  }
  void keys() {
    writer_.add("general.architecture", "deepseek4");
    key("block_count", kLayers);
    key("context_length", kContext);
    key("embedding_length", kWidth);
    key("vocab_size", kVocabulary);
    key("attention.head_count", kHeads);
    key("attention.head_count_kv", 1);
    key("attention.key_length", kHead);
    key("attention.value_length", kHead);
    key("attention.q_lora_rank", kQueryRank);
    key("attention.output_lora_rank", kOutputRank);
    key("attention.output_group_count", kGroups);
    key("attention.sliding_window", 128);
    writer_.add("deepseek4.attention.compress_ratios", ratios());
    writer_.add("deepseek4.attention.compress_rope_freq_base", 160000.f);
    key("attention.indexer.head_count", kIndexHeads);
    key("attention.indexer.key_length", kIndexDim);
    key("attention.indexer.top_k", 512);
    writer_.add("deepseek4.attention.layer_norm_rms_epsilon", 1e-6f);
    key("expert_count", kExperts);
    key("expert_used_count", kChosen);
    key("expert_shared_count", 1);
    key("expert_feed_forward_length", kHidden);
    key("expert_group_count", 0);
    key("expert_group_used_count", 0);
    writer_.add("deepseek4.expert_weights_scale", 1.5f);
    writer_.add("deepseek4.expert_weights_norm", true);
    key("hash_layer_count", kHashed);
    writer_.add("deepseek4.swiglu_clamp_exp", std::vector<float>(kLayers, 10.f));
    key("hyper_connection.count", kStreams);
    key("hyper_connection.sinkhorn_iterations", 20);
    writer_.add("deepseek4.hyper_connection.epsilon", 1e-6f);
    key("rope.dimension_count", 64);
    writer_.add("deepseek4.rope.freq_base", 10000.f);
    writer_.add("deepseek4.rope.scaling.type", "yarn");
    writer_.add("deepseek4.rope.scaling.factor", 16.f);
    key("rope.scaling.original_context_length", 65536);
    writer_.add("deepseek4.rope.scaling.yarn_beta_fast", 32.f);
    writer_.add("deepseek4.rope.scaling.yarn_beta_slow", 1.f);
  }
  void streams(const std::string& stem, std::uint64_t rows, std::uint64_t scales) {
    tensor(stem + "_fn.weight", Format::kF16, {rows, kStreams * kWidth});
    tensor(stem + "_base.weight", Format::kF32, {rows});
    tensor(stem + "_scale.weight", Format::kF32, {scales});
  }
  void attention(const std::string& block) {
    streams(block + "hc_attn", (2 + kStreams) * kStreams, 3);
    tensor(block + "attn_norm.weight", Format::kF32, {kWidth});
    tensor(block + "attn_q_a.weight", Format::kQ8_0, {kQueryRank, kWidth});
    tensor(block + "attn_q_a_norm.weight", Format::kF32, {kQueryRank});
    tensor(block + "attn_q_b.weight", Format::kQ8_0, {kHeads * kHead, kQueryRank});
    tensor(block + "attn_kv.weight", Format::kQ8_0, {kHead, kWidth});
    tensor(block + "attn_kv_a_norm.weight", Format::kF32, {kHead});
    tensor(block + "attn_sinks.weight", Format::kF32, {kHeads});
    tensor(block + "attn_output_a.weight", Format::kQ8_0,
           {kGroups * kOutputRank, kHeads * kHead / kGroups});
    tensor(block + "attn_output_b.weight", Format::kQ8_0, {kWidth, kGroups * kOutputRank});
  }
  void compressor(const std::string& stem, std::uint64_t ratio, std::uint64_t width) {
    const std::uint64_t channels = ratio == 4 ? 2 * width : width;
    tensor(stem + "_kv.weight", Format::kF16, {channels, kWidth});
    tensor(stem + "_gate.weight", Format::kF16, {channels, kWidth});
    tensor(stem + "_ape.weight", Format::kF16, {ratio, channels});
    tensor(stem + "_norm.weight", Format::kF32, {width});
  }
  void compression(const std::string& block, std::uint64_t ratio) {
    compressor(block + "attn_compressor", ratio, kHead);
    if (ratio != 4) return;
    compressor(block + "indexer_compressor", ratio, kIndexDim);
    tensor(block + "indexer.attn_q_b.weight", Format::kF16, {kIndexHeads * kIndexDim, kQueryRank});
    tensor(block + "indexer.proj.weight", Format::kF16, {kIndexHeads, kWidth});
  }
  void experts(const std::string& block, bool hashed) {
    streams(block + "hc_ffn", (2 + kStreams) * kStreams, 3);
    tensor(block + "ffn_norm.weight", Format::kF32, {kWidth});
    tensor(block + "ffn_gate_inp.weight", Format::kF16, {kExperts, kWidth});
    if (hashed)
      tensor(block + "ffn_gate_tid2eid.weight", Format::kI32, {kVocabulary, kChosen});
    else
      tensor(block + "exp_probs_b.bias", Format::kF32, {kExperts});
    for (const char* up : {"ffn_gate", "ffn_up"}) {
      tensor(block + up + "_exps.weight", Format::kQ4_K, {kExperts, kHidden, kWidth});
      tensor(block + up + "_shexp.weight", Format::kQ8_0, {kHidden, kWidth});
    }
    tensor(block + "ffn_down_exps.weight", Format::kQ4_K, {kExperts, kWidth, kHidden});
    tensor(block + "ffn_down_shexp.weight", Format::kQ8_0, {kWidth, kHidden});
  }
  void tensor(std::string name, Format format, std::vector<std::uint64_t> shape) {
    constexpr std::uint64_t kAlignment = 32;
    const std::uint64_t rows =
        std::accumulate(shape.begin(), shape.end() - 1, std::uint64_t{1}, std::multiplies<>());
    const std::uint64_t bytes = rows * weights::row_bytes(format, shape.back());
    data_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    writer_.add_tensor(std::move(name), format, std::move(shape),
                       [] { return std::vector<std::byte>(); });
  }

  Writer writer_;
  std::uint64_t data_ = 0;
  std::filesystem::path folder_;
};

class DeepSeek4FullSize : public ::testing::Test {
 protected:
  void SetUp() override {
    checkpoint_ = weights::open_checkpoint(file_.path());
    plan_ = make_plan(*checkpoint_, {});
  }
  FullSizeFile file_;
  std::unique_ptr<const weights::Checkpoint> checkpoint_;
  Plan plan_;
};

TEST_F(DeepSeek4FullSize, IsPlannedLayerByLayer) {
  EXPECT_NO_THROW(plan_.validate());
  ASSERT_EQ(plan_.layers.size(), kLayers);
  std::size_t raw = 0, fine = 0, coarse = 0, tables = 0;
  for (const Layer& layer : plan_.layers) {
    const auto& spec = std::get<CompressedSparse>(layer.sites[0].mixer).spec;
    (spec.ratio == 0 ? raw : spec.ratio == 4 ? fine : coarse) += 1;
    tables += std::get<Moe>(layer.sites[1].mixer).routing.hashed;
    EXPECT_EQ(std::get<Moe>(layer.sites[1].mixer).shared->spec.activation.limit, 10.f);
  }
  EXPECT_EQ(raw, 2u);
  EXPECT_EQ(fine, 21u);
  EXPECT_EQ(coarse, 20u);
  EXPECT_EQ(tables, kHashed);
}

TEST_F(DeepSeek4FullSize, CostsWhatItsDimensionsSay) {
  const Cost cost = cost_of(plan_, *checkpoint_, {});
  EXPECT_NEAR(double(cost.parameters), 284e9, 1e9);
  EXPECT_EQ(cost.context, kContext);
  // Rows are f16, blocks of pending tokens f32.
  const std::uint64_t fine = kContext / 4 * (kHead + kIndexDim) * 2;
  const std::uint64_t coarse = kContext / 128 * kHead * 2;
  const std::uint64_t fine_pending = 4 * 2 * (2 + 1) * (kHead + kIndexDim) * 4;
  const std::uint64_t coarse_pending = 128 * 2 * kHead * 4;
  const std::uint64_t windows = kLayers * 128 * kHead * 2;
  EXPECT_EQ(cost.state_formula_bytes,
            windows + 21 * (fine + fine_pending) + 20 * (coarse + coarse_pending));
  EXPECT_GE(cost.state_bytes, cost.state_formula_bytes);
  // Beyond the formula: the snapshots' tenth, pages and windows that are not full.
  EXPECT_LT(double(cost.state_bytes), 1.12 * double(cost.state_formula_bytes));
}

TEST_F(DeepSeek4FullSize, IsPrinted) {
  const std::string text = to_text(plan_), json = to_json(plan_);
  for (const char* word : {"deepseek4", "1048576"})
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in\n" << text;
  for (const WeightRef* weight : weights_of(plan_))
    ASSERT_NE(json.find('"' + weight->tensor + '"'), std::string::npos) << weight->tensor;
}

}  // namespace
}  // namespace lemma::model::arch
