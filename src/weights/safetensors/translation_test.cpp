// SPDX-License-Identifier: Apache-2.0
// Folders as checkpoints: what a model says in Hugging Face's words, said in GGUF's; and what is
// wrong or unknown, named.
#include "weights/safetensors/translation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include <nlohmann/json.hpp>

#include "lemma/error.hpp"
#include "weights/checkpoint.hpp"
#include "weights/gguf/writer.hpp"
#include "weights/safetensors/tiny_folder.hpp"
#include "weights/view.hpp"

namespace lemma::weights::safetensors {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const TinyFolder& folder, ErrorKind kind) {
  try {
    open_checkpoint(folder.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(folder.path().string()));
    return error.what();
  }
  return "no error";
}

/// The error of a tiny llama that `change` has spoilt.
std::string error_after(const std::function<void(TinyFolder&)>& change,
                        ErrorKind kind = ErrorKind::kBadFile) {
  TinyFolder folder = TinyFolder::llama();
  change(folder);
  folder.write();
  return error_of(folder, kind);
}

std::vector<float> values(const Checkpoint& checkpoint, const std::string& name, std::uint64_t rows,
                          std::uint64_t cols) {
  return to_f32(bind(checkpoint, {name, View::whole()}, rows, cols));
}

TEST(SafetensorsCheckpoint, SpeaksTheVocabularyOfGguf) {
  TinyFolder folder = TinyFolder::llama();
  folder.write();
  const auto checkpoint = open_checkpoint(folder.path());
  const Metadata& keys = checkpoint->metadata();
  EXPECT_EQ(keys.string("general.architecture"), "llama");
  EXPECT_EQ(keys.u32("llama.block_count"), 1u);
  EXPECT_EQ(keys.u32("llama.attention.head_count_kv"), 1u);
  EXPECT_EQ(keys.u32("llama.rope.dimension_count"), 4u);
  EXPECT_FLOAT_EQ(keys.f32("llama.attention.layer_norm_rms_epsilon"), 1e-5f);
  EXPECT_NE(checkpoint->find("blk.0.ffn_down.weight"), nullptr);
  EXPECT_EQ(checkpoint->find("output.weight"), nullptr);  // tied
  EXPECT_EQ(checkpoint->files().size(), 1u);
}

TEST(SafetensorsCheckpoint, LeavesInTheMappingWhatIsTheSame) {
  TinyFolder folder = TinyFolder::llama();
  folder.write();
  const auto checkpoint = open_checkpoint(folder.path());
  EXPECT_FALSE(checkpoint->at("blk.0.attn_v.weight").lazy);
  EXPECT_EQ(checkpoint->at("blk.0.attn_v.weight").bytes.size(), 4 * 8 * sizeof(float));
}

// Rows h, h + 1 of a head of four turn with rows h + 2, h + 3; GGUF has each pair together.
TEST(SafetensorsCheckpoint, PutsRowsThatTurnTogetherBesideEachOther) {
  TinyFolder folder = TinyFolder::llama();
  folder.write();
  const auto checkpoint = open_checkpoint(folder.path());
  const std::vector<float> rows = values(*checkpoint, "blk.0.attn_q.weight", 8, 8);
  std::vector<float> first;
  for (std::size_t row = 0; row < 8; ++row) first.push_back(rows[row * 8] - 4000);
  EXPECT_THAT(first, ElementsAre(0, 16, 8, 24, 32, 48, 40, 56));
}

TEST(SafetensorsCheckpoint, MakesATensorOnceForAllWhoHoldIt) {
  TinyFolder folder = TinyFolder::llama();
  folder.write();
  const auto checkpoint = open_checkpoint(folder.path());
  const WeightRef query{"blk.0.attn_q.weight", View::whole()};
  const Matrix first = bind(*checkpoint, query, 8, 8), second = bind(*checkpoint, query, 8, 8);
  EXPECT_EQ(first.bytes, second.bytes);
}

TEST(SafetensorsCheckpoint, HandsOnTheTextsOfTheTokenizer) {
  TinyFolder folder = TinyFolder::llama();
  folder.config()["eos_token_id"] = 3;
  folder.write();
  folder.write_text("tokenizer.json", "{\"model\": {}}");
  folder.write_text("tokenizer_config.json", "{\"chat_template\": \"hello\"}");
  folder.write_text("generation_config.json", "{}");
  const auto checkpoint = open_checkpoint(folder.path());
  const Metadata& keys = checkpoint->metadata();
  EXPECT_EQ(keys.string("tokenizer.huggingface.json"), "{\"model\": {}}");
  EXPECT_EQ(keys.string("tokenizer.chat_template"), "hello");
  EXPECT_EQ(keys.string("tokenizer.huggingface.generation"), "{}");
  EXPECT_EQ(keys.u32("tokenizer.ggml.eos_token_id"), 3u);
}

TEST(SafetensorsCheckpoint, HandsOnSeveralTemplatesByTheirNames) {
  TinyFolder folder = TinyFolder::llama();
  folder.write();
  folder.write_text("tokenizer_config.json",
                    R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                                          {"name": "default", "template": "plain"}]})");
  const auto checkpoint = open_checkpoint(folder.path());
  EXPECT_EQ(checkpoint->metadata().string("tokenizer.chat_template"), "plain");
  EXPECT_EQ(checkpoint->metadata().string("tokenizer.chat_template.tool_use"), "tools");
  folder.write_text("tokenizer_config.json", R"({"chat_template": [3]})");
  EXPECT_THROW(open_checkpoint(folder.path()), Error);
}

TEST(SafetensorsCheckpoint, TakesHalvesAndLeavesWhatIsTied) {
  TinyFolder folder = TinyFolder::llama();
  const std::vector<std::uint16_t> ones(48, 0x3f80);
  folder.add_bytes("lm_head.weight", "BF16", {6, 8}, ones.data(), 96);
  folder.write();
  EXPECT_EQ(open_checkpoint(folder.path())->find("output.weight"), nullptr);
  folder.config()["tie_word_embeddings"] = false;
  folder.write();
  EXPECT_EQ(open_checkpoint(folder.path())->at("output.weight").format, Format::kBF16);
}

TEST(SafetensorsCheckpoint, ReadsFp8WithTilesOfScales) {
  TinyFolder folder = TinyFolder::llama();
  const std::string name = "model.layers.0.self_attn.v_proj.weight";
  folder.remove(name);
  const std::vector<std::uint8_t> ones(32, 0x38);
  const float scales[] = {2, 3};
  folder.add_bytes(name, "F8_E4M3", {4, 8}, ones.data(), 32);
  folder.add_bytes(name + "_scale_inv", "F32", {1, 2}, scales, sizeof scales);
  folder.config()["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {4, 4}}};
  folder.write();
  const auto checkpoint = open_checkpoint(folder.path());
  const std::vector<float> v = values(*checkpoint, "blk.0.attn_v.weight", 4, 8);
  EXPECT_EQ(v[3], 2.f);
  EXPECT_EQ(v[4], 3.f);
}

// What a wrapper leaves out is the default of the published code.
TEST(SafetensorsCheckpoint, CompletesTheTextModelOfAWrapper) {
  TinyFolder folder;
  folder.config() = {{"model_type", "gemma3"},
                     {"vision_config", {{"hidden_size", 1}}},
                     {"text_config",
                      {{"model_type", "gemma3_text"},
                       {"hidden_size", 2560},
                       {"intermediate_size", 4},
                       {"num_hidden_layers", 1},
                       {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                       {"sliding_window", 1024}}}};
  folder.add("language_model.model.layers.0.self_attn.q_norm.weight", {256});
  folder.add("vision_tower.patches.weight", {3});
  folder.write();
  const auto checkpoint = open_checkpoint(folder.path());
  const Metadata& keys = checkpoint->metadata();
  EXPECT_EQ(keys.u32("gemma3.attention.head_count"), 8u);
  EXPECT_EQ(keys.u32("gemma3.attention.key_length"), 256u);
  EXPECT_FLOAT_EQ(keys.f32("gemma3.attention.scale"), 1.f / 16);
  EXPECT_FLOAT_EQ(keys.f32("gemma3.rope.scaling.factor"), 8.f);
  EXPECT_EQ(values(*checkpoint, "blk.0.attn_q_norm.weight", 1, 256)[3], 4.f);  // 1 + w
  EXPECT_EQ(checkpoint->tensors().size(), 1u);
}

// Rows 2 r and 2 r + 1 of the packed stack are row r of the gates and of the ups.
TEST(SafetensorsCheckpoint, TakesPackedExpertsApartWithoutUnpackingThem) {
  TinyFolder folder = TinyFolder::llama();
  nlohmann::json& config = folder.config();
  config["model_type"] = "gpt_oss";
  config["hidden_size"] = 32;
  config["intermediate_size"] = 32;
  config["num_local_experts"] = 2;
  config["num_experts_per_tok"] = 1;
  config["sliding_window"] = 4;
  config["layer_types"] = {"full_attention"};
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  config.erase("vocab_size");
  folder.tensors.clear();
  const std::string at = "model.layers.0.mlp.experts.";
  std::vector<std::uint8_t> blocks(2 * 64 * 16, 0x22), scales(2 * 64);  // ones times a power of two
  for (std::size_t row = 0; row < scales.size(); ++row)
    scales[row] = static_cast<std::uint8_t>(127 + row % 2);
  folder.add_bytes(at + "gate_up_proj_blocks", "U8", {2, 64, 1, 16}, blocks.data(), blocks.size());
  folder.add_bytes(at + "gate_up_proj_scales", "U8", {2, 64, 1}, scales.data(), scales.size());
  folder.add_bytes(at + "down_proj_blocks", "U8", {2, 32, 1, 16}, blocks.data(), blocks.size() / 2);
  folder.add_bytes(at + "down_proj_scales", "U8", {2, 32, 1}, scales.data(), scales.size() / 2);
  folder.add(at + "gate_up_proj_bias", {2, 64});
  folder.add(at + "down_proj_bias", {2, 32});
  folder.write();
  const auto checkpoint = open_checkpoint(folder.path());
  EXPECT_EQ(checkpoint->at("blk.0.ffn_gate_exps.weight").format, Format::kMXFP4);
  EXPECT_EQ(checkpoint->at("blk.0.ffn_gate_exps.weight").size_bytes(), 2u * 32 * 17);
  EXPECT_THAT(values(*checkpoint, "blk.0.ffn_gate_exps.weight", 64, 32), ::testing::Each(1.f));
  EXPECT_THAT(values(*checkpoint, "blk.0.ffn_up_exps.weight", 64, 32), ::testing::Each(2.f));
  EXPECT_EQ(values(*checkpoint, "blk.0.ffn_up_exps.bias", 2, 32)[1], 4003.f);
}

// All of transformers' words for it; `proportional` is Gemma 4's alone.
TEST(SafetensorsCheckpoint, HonoursEveryTypeOfRotation) {
  const nlohmann::json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8}};
  const nlohmann::json llama3 = {{"rope_type", "llama3"},
                                 {"factor", 8.0},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0},
                                 {"original_max_position_embeddings", 8}};
  const nlohmann::json longrope = {{"rope_type", "longrope"},
                                   {"long_factor", {2.0, 3.0}},
                                   {"short_factor", {1.0, 1.5}},
                                   {"original_max_position_embeddings", 8}};
  const auto opened = [](const nlohmann::json& scaling) {
    TinyFolder folder = TinyFolder::llama();
    folder.config()["rope_scaling"] = scaling;
    folder.write();
    return open_checkpoint(folder.path());
  };
  EXPECT_FALSE(opened({{"rope_type", "default"}})->metadata().has("llama.rope.scaling.type"));
  EXPECT_EQ(opened({{"rope_type", "linear"}, {"factor", 2.0}})
                ->metadata()
                .f32("llama.rope.scaling.factor"),
            2.f);
  EXPECT_EQ(opened({{"rope_type", "dynamic"}, {"factor", 2.0}})
                ->metadata()
                .f32("llama.rope.scaling.dynamic_factor"),
            2.f);
  EXPECT_EQ(opened(yarn)->metadata().string("llama.rope.scaling.type"), "yarn");
  EXPECT_NE(opened(llama3)->find("rope_freqs.weight"), nullptr);
  EXPECT_NE(opened(longrope)->find("rope_factors_long.weight"), nullptr);
}

TEST(SafetensorsCheckpoint, RefusesByNameWhatItDoesNotKnow) {
  using Folder = TinyFolder&;
  const auto unsupported = ErrorKind::kUnsupported;
  EXPECT_THAT(error_after([](Folder f) { f.config()["new_attention"] = true; }, unsupported),
              HasSubstr("'new_attention'"));
  EXPECT_THAT(error_after([](Folder f) { f.config()["hidden_act"] = "relu"; }, unsupported),
              HasSubstr("'hidden_act'"));
  EXPECT_THAT(error_after([](Folder f) { f.add("model.layers.0.mystery", {2}); }, unsupported),
              HasSubstr("'model.layers.0.mystery'"));
  EXPECT_THAT(error_after([](Folder f) { f.config()["model_type"] = "mamba9"; }, unsupported),
              HasSubstr("'mamba9'"));
  // The family whose experts are known and whose recurrence is not.
  EXPECT_THAT(error_after([](Folder f) { f.config()["model_type"] = "nemotron_h"; }, unsupported),
              HasSubstr("'nemotron_h'"));
  // Alternating updates of several streams are no part of the contract.
  EXPECT_THAT(error_after([](Folder f) { f.config()["model_type"] = "gemma3n"; }, unsupported),
              HasSubstr("'gemma3n'"));
  // The first generation of a family whose second is known.
  EXPECT_THAT(error_after([](Folder f) { f.config()["model_type"] = "bailing_moe"; }, unsupported),
              HasSubstr("'use_qk_norm'"));
  EXPECT_THAT(error_after(
                  [](Folder f) {
                    f.config()["rope_scaling"] = {{"rope_type", "proportional"}, {"factor", 2.0}};
                  },
                  unsupported),
              HasSubstr("'proportional'"));
  EXPECT_THAT(
      error_after(
          [](Folder f) {
            f.config()["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"twist", 1}};
          },
          unsupported),
      HasSubstr("'rope_scaling.twist'"));
  EXPECT_THAT(error_after(
                  [](Folder f) {
                    f.config()["quantization_config"] = {{"quant_method", "magic"}};
                  },
                  unsupported),
              HasSubstr("'magic'"));
}

TEST(SafetensorsCheckpoint, RefusesWhatContradictsItself) {
  using Folder = TinyFolder&;
  EXPECT_THAT(error_after([](Folder f) { f.config()["num_hidden_layers"] = 4294967295u; }),
              HasSubstr("'num_hidden_layers'"));
  EXPECT_THAT(error_after([](Folder f) { f.config()["num_hidden_layers"] = 0; }),
              HasSubstr("'num_hidden_layers'"));
  EXPECT_THAT(error_after([](Folder f) { f.config()["vocab_size"] = 7; }),
              HasSubstr("'vocab_size'"));
  EXPECT_THAT(error_after([](Folder f) { f.config()["num_attention_heads"] = 3; }),
              HasSubstr("heads"));
  EXPECT_THAT(error_after([](Folder f) { f.config()["head_dim"] = 3; }), HasSubstr("even"));
  EXPECT_THAT(error_after([](Folder f) { f.config()["head_dim"] = 64; }), HasSubstr("q_proj"));
  EXPECT_THAT(error_after([](Folder f) { f.config()["hidden_size"] = "8"; }),
              HasSubstr("'hidden_size'"));
  EXPECT_THAT(error_after([](Folder f) { f.config().erase("hidden_size"); }),
              HasSubstr("'hidden_size'"));
  EXPECT_THAT(error_after([](Folder f) { f.add("norm.weight", {8}); }), HasSubstr("norm.weight"));
}

TEST(SafetensorsCheckpoint, RefusesAWeightOfWholeNumbers) {
  EXPECT_THAT(error_after([](TinyFolder& folder) { folder.at("model.norm.weight").dtype = "I32"; },
                          ErrorKind::kUnsupported),
              HasSubstr("'model.norm.weight'"));
}

TEST(SafetensorsCheckpoint, SaysWhatAFolderLacks) {
  TinyFolder folder = TinyFolder::llama();
  folder.write_text("config.json", folder.config().dump());
  EXPECT_THAT(error_of(folder, ErrorKind::kNotFound), HasSubstr("neither a .gguf file"));
  folder.write();
  std::filesystem::remove(folder.path() / "config.json");
  try {
    open_checkpoint(folder.path() / "model.safetensors");
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("config.json"));
  }
}

TEST(SafetensorsCheckpoint, RefusesAFolderOfTwoKinds) {
  TinyFolder folder = TinyFolder::llama();
  folder.write();
  gguf::Writer writer;
  writer.add("general.architecture", "llama");
  writer.write(folder.path() / "model.gguf");
  EXPECT_THAT(error_of(folder, ErrorKind::kUsage), HasSubstr("name a file of one"));
}

}  // namespace
}  // namespace lemma::weights::safetensors
