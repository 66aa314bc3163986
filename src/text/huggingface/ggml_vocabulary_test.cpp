// SPDX-License-Identifier: Apache-2.0
// Vocabularies of tokenizer.json said in GGUF's keys. Against other readers of the result:
// tests/safetensors/check_gguf.py.
#include "text/huggingface/ggml_vocabulary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "text/byte_alphabet.hpp"
#include "text/tokenizer.hpp"

namespace lemma::text {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

/// Bytes as tokens, two merges, and an end token.
Json byte_level(const std::string& pattern) {
  Json vocabulary;
  int id = 0;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[spelling_of_bytes(std::string(1, static_cast<char>(byte)))] = id++;
  vocabulary["he"] = id++;
  vocabulary["hel"] = id++;
  vocabulary["12"] = id++;
  return {{"added_tokens",
           {{{"id", 259}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"},
               {"pattern", {{"Regex", pattern}}},
               {"behavior", "Isolated"},
               {"invert", false}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"h e", "he l", "1 2"}}}}};
}

weights::Metadata folder_of(const Json& json) {
  weights::Metadata metadata;
  metadata.add(std::string(Tokenizer::kJsonKey), {json.dump(), "string"});
  metadata.add(std::string(Tokenizer::kConfigKey),
               {std::string(R"({"eos_token": "<|end|>"})"), "string"});
  return metadata;
}

constexpr const char* kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

TEST(GgmlVocabulary, NamesTheRulesOfAByteLevelTokenizer) {
  const GgmlVocabulary found = ggml_vocabulary(folder_of(byte_level(kQwen)), 264);
  ASSERT_EQ(found.why_not, "");
  EXPECT_EQ(found.keys.string("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(found.keys.string("tokenizer.ggml.pre"), "qwen2");
  EXPECT_EQ(found.keys.strings("tokenizer.ggml.merges")[1], "he l");
  EXPECT_EQ(found.keys.u32("tokenizer.ggml.eos_token_id"), 259u);
  // As many as the embedding has rows; what the file leaves out is unused.
  EXPECT_EQ(found.keys.strings("tokenizer.ggml.tokens").size(), 264u);
  EXPECT_EQ(found.keys.i32s("tokenizer.ggml.token_type")[259], 3);
  EXPECT_EQ(found.keys.i32s("tokenizer.ggml.token_type")[263], 5);
}

TEST(GgmlVocabulary, IsRefusedWhereNoRulesGiveTheSameIds) {
  const GgmlVocabulary found = ggml_vocabulary(folder_of(byte_level("[aeiouh]+|[^aeiouh]+")), 264);
  EXPECT_TRUE(found.keys.pairs().empty());
  EXPECT_THAT(found.why_not, HasSubstr("no known rules give the same ids"));
}

TEST(GgmlVocabulary, IsRefusedWhereTheEmbeddingHasFewerRows) {
  EXPECT_THAT(ggml_vocabulary(folder_of(byte_level(kQwen)), 100).why_not, HasSubstr("260 tokens"));
}

TEST(GgmlVocabulary, OfMergesWithByteTokensIsScoredByRank) {
  Json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    vocabulary[name] = 3 + byte;
  }
  int id = 259;
  for (const char* text : {"\xE2\x96\x81", "h", "e", "l", "o", "he", "ll", "hell", "\xE2\x96\x81h"})
    vocabulary[text] = id++;
  const Json json = {
      {"added_tokens",
       {{{"id", 1}, {"content", "<s>"}, {"special", true}, {"normalized", false}},
        {{"id", 2}, {"content", "</s>"}, {"special", true}, {"normalized", false}}}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xE2\x96\x81"}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
      {"decoder", nullptr},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"byte_fallback", true},
        {"fuse_unk", true},
        {"vocab", vocabulary},
        {"merges", {"h e", "l l", "he ll", "\xE2\x96\x81 h"}}}}};
  weights::Metadata metadata;
  metadata.add(std::string(Tokenizer::kJsonKey), {json.dump(), "string"});
  const GgmlVocabulary found = ggml_vocabulary(metadata, 268);
  ASSERT_EQ(found.why_not, "");
  EXPECT_EQ(found.keys.string("tokenizer.ggml.model"), "llama");
  EXPECT_TRUE(found.keys.boolean("tokenizer.ggml.add_space_prefix"));
  EXPECT_TRUE(found.keys.boolean("tokenizer.ggml.add_bos_token"));
  EXPECT_GT(found.keys.floats("tokenizer.ggml.scores")[264],
            found.keys.floats("tokenizer.ggml.scores")[266]);
}

// The tokenizer.json stays in the file and says more: this one composes letters.
TEST(GgmlVocabulary, LeavesTheTokenizerJsonTheFirstWord) {
  Json json = byte_level(kQwen);
  json["normalizer"] = {{"type", "NFC"}};
  const weights::Metadata metadata = folder_of(json);
  const weights::Metadata written = with_ggml_vocabulary(metadata, 264);
  EXPECT_TRUE(written.has("tokenizer.ggml.model"));
  const std::string decomposed = "e\xCC\x81";
  const auto before = Tokenizer::from_metadata(metadata);
  EXPECT_EQ(Tokenizer::from_metadata(written)->encode(decomposed), before->encode(decomposed));
  EXPECT_NE(Tokenizer::from_metadata(ggml_vocabulary(metadata, 264).keys)->encode(decomposed),
            before->encode(decomposed));
}

TEST(GgmlVocabulary, OfAFileThatHasOneIsLeftAlone) {
  weights::Metadata metadata = folder_of(byte_level(kQwen));
  metadata.add("tokenizer.ggml.model", {std::string("gpt2"), "string"});
  EXPECT_TRUE(ggml_vocabulary(metadata, 264).keys.pairs().empty());
  EXPECT_EQ(with_ggml_vocabulary(metadata, 264).pairs().size(), metadata.pairs().size());
}

}  // namespace
}  // namespace lemma::text
