// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: small files of every kind against what Hugging Face's library gives
// (tests/fixtures/make_tokenizer_cases.py), and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/utf8.hpp"
#include "lemma/error.hpp"
#include "test_data.hpp"
#include "text/detokenizer.hpp"
#include "text/sample_vocabulary.hpp"
#include "text/tokenizer.hpp"

namespace lemma::text {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

json read_json(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return json::parse(std::string{std::istreambuf_iterator<char>(in), {}});
}

std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  const auto folder = test::source_dir() / "tests/fixtures/data/tokenizers";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class TokenizerJsonFixture : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerJsonFixture, GivesTheIdsAndTextOfTheReference) {
  const json fixture =
      read_json(test::source_dir() / "tests/fixtures/data/tokenizers" / (GetParam() + ".json"));
  const auto tokenizer = Tokenizer::from_json(fixture.at("tokenizer").dump());
  ASSERT_GE(fixture.at("cases").size(), 50u);
  for (const json& entry : fixture.at("cases")) {
    const std::string text = entry.at("text").get<std::string>();
    SCOPED_TRACE("text: " + text);
    const Ids ids = tokenizer->encode(text, {.parse_special = true});
    const Ids bare = tokenizer->encode(text, {.add_special = false});
    EXPECT_EQ(ids, entry.at("ids").get<Ids>());
    EXPECT_EQ(bare, entry.at("bare").get<Ids>());
    EXPECT_EQ(base::repair_utf8(tokenizer->decode(ids, {.show_special = true})),
              entry.at("shown").get<std::string>());
    EXPECT_EQ(base::repair_utf8(tokenizer->decode(bare)), entry.at("plain").get<std::string>());
    Detokenizer out(*tokenizer, {false, true, InvalidBytes::kKeep});
    std::string streamed;
    for (const TokenId id : bare) streamed += out.push(id);
    EXPECT_EQ(streamed + out.finish(), tokenizer->decode(bare));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerJsonFixture, testing::ValuesIn(fixture_names()),
                         [](const auto& fixture) {
                           std::string name = fixture.param;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

/// A word-level tokenizer with one member replaced.
json small(const std::string& name = "", const json& value = nullptr) {
  json root = {{"model",
                {{"type", "WordLevel"},
                 {"vocab", {{"a", 0}, {"b", 1}, {"[UNK]", 2}, {"<s>", 3}}},
                 {"unk_token", "[UNK]"}}},
               {"added_tokens", json::array({{{"id", 3}, {"content", "<s>"}, {"special", true}}})},
               {"pre_tokenizer", {{"type", "WhitespaceSplit"}}}};
  if (!name.empty()) root[name] = value;
  return root;
}

void expect_refused(const json& root, ErrorKind kind, const std::string& names) {
  try {
    Tokenizer::from_json(root.dump());
    FAIL() << "accepted; expected a refusal that names " << names;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(names));
  }
}

TEST(TokenizerJson, StandsInMetadataUnderItsKeys) {
  weights::Metadata metadata;
  metadata.add(std::string(Tokenizer::kJsonKey), {small().dump(), "string"});
  metadata.add(
      std::string(Tokenizer::kConfigKey),
      {std::string(R"({"bos_token": {"content": "<s>"}, "add_bos_token": true})"), "string"});
  const auto t = Tokenizer::from_metadata(metadata);
  EXPECT_EQ(t->model_name(), "WordLevel");
  EXPECT_TRUE(t->adds_bos());
  EXPECT_THAT(t->encode("a b c"), ElementsAre(3, 0, 1, 2));
}

TEST(TokenizerJson, TakesControlTokensOutOfTextOnRequestOnly) {
  const auto t = Tokenizer::from_json(small().dump());
  EXPECT_THAT(t->encode("a <s> b", {.parse_special = true}), ElementsAre(0, 3, 1));
  EXPECT_THAT(t->encode("a <s> b"), ElementsAre(0, 2, 1)) << "not even as a word of the vocabulary";
}

TEST(TokenizerJson, NeverLetsANormalizerMakeAControlToken) {
  json root = small("normalizer", {{"type", "Lowercase"}});
  root["added_tokens"][0]["normalized"] = true;
  const auto t = Tokenizer::from_json(root.dump());
  EXPECT_THAT(t->encode("a <S> <s>", {.parse_special = true}), ElementsAre(0, 2, 3));
}

TEST(TokenizerJson, ReadsWhatStandsAroundATextFromItsTemplate) {
  const json single = json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                                   {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                                   {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}});
  const auto t = Tokenizer::from_json(
      small("post_processor",
            {{"type", "Sequence"},
             {"processors", json::array({{{"type", "ByteLevel"}},
                                         {{"type", "TemplateProcessing"},
                                          {"single", single},
                                          {"special_tokens", {{"<s>", {{"ids", {3}}}}}}}})}})
          .dump());
  EXPECT_THAT(t->encode("a"), ElementsAre(3, 0, 3));
  EXPECT_EQ(t->bos(), 3);
}

TEST(TokenizerJson, EndsAtEveryTokenThatTheGenerationSettingsName) {
  const std::string root = small().dump();
  const auto ends = [&](std::string_view generation) {
    const auto t = Tokenizer::from_json(root, "", {}, generation);
    return std::vector<TokenId>(t->end_of_generation().begin(), t->end_of_generation().end());
  };
  const std::vector<TokenId> plain = ends("");
  EXPECT_EQ(ends(R"({"eos_token_id": null})"), plain);
  EXPECT_EQ(ends(R"({"eos_token_id": [1000000, -1]})"), plain);
  std::vector<TokenId> more = plain;
  for (const TokenId id : {0, 1}) more.push_back(id);
  std::sort(more.begin(), more.end());
  more.erase(std::unique(more.begin(), more.end()), more.end());
  ASSERT_NE(more, plain);
  EXPECT_EQ(ends(R"({"eos_token_id": [1, 0]})"), more);
  EXPECT_THROW(ends(R"({"eos_token_id": "x"})"), Error);
  EXPECT_THROW(ends("["), Error);
}

TEST(TokenizerJson, RefusesUnknownTypesAndListsTheKnownOnes) {
  expect_refused(small("normalizer", {{"type", "Martian"}}), ErrorKind::kUnsupported, "'Martian'");
  expect_refused(small("normalizer", {{"type", "Martian"}}), ErrorKind::kUnsupported, "NFKC");
  expect_refused(small("pre_tokenizer", {{"type", "Martian"}}), ErrorKind::kUnsupported,
                 "Metaspace");
  expect_refused(small("decoder", {{"type", "CTC"}}), ErrorKind::kUnsupported, "ByteFallback");
  expect_refused(small("post_processor", {{"type", "Martian"}}), ErrorKind::kUnsupported,
                 "TemplateProcessing");
  expect_refused(small("model", {{"type", "Martian"}, {"vocab", json::object()}}),
                 ErrorKind::kUnsupported, "Unigram");
}

TEST(TokenizerJson, RefusesDropout) {
  expect_refused(small("model", {{"type", "BPE"},
                                 {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"<s>", 3}}},
                                 {"merges", {"a b"}},
                                 {"dropout", 0.1}}),
                 ErrorKind::kUnsupported, "dropout");
}

TEST(TokenizerJson, RefusesContradictionsByName) {
  expect_refused(small("model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 0}}}}),
                 ErrorKind::kBadFile, "share id 0");
  expect_refused(small("model", {{"type", "BPE"}, {"vocab", {{"a", -1}}}}), ErrorKind::kBadFile,
                 "'a'");
  expect_refused(small("model", {{"type", "BPE"}, {"vocab", {{"a", 2000000000}}}}),
                 ErrorKind::kBadFile, "2000000000");
  expect_refused(small("model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", {"ab"}}}),
                 ErrorKind::kBadFile, "merge 0");
  expect_refused(small("model", {{"type", "Unigram"}, {"vocab", {{"a", 0.0, 1}}}}),
                 ErrorKind::kBadFile, "vocab entry 0");
  expect_refused(small("model", {{"type", "Unigram"},
                                 {"vocab", json::array({json::array({"a", 0.0})})},
                                 {"unk_id", 7}}),
                 ErrorKind::kBadFile, "unk_id 7");
  expect_refused(small("added_tokens",
                       json::array({{{"id", 2000000000}, {"content", "x"}, {"special", true}}})),
                 ErrorKind::kBadFile, "2000000000");
  expect_refused(
      small("post_processor", {{"type", "BertProcessing"}, {"cls", {"x", 99}}, {"sep", {"y", 1}}}),
      ErrorKind::kBadFile, "99");
  expect_refused(small("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "!"}}),
                 ErrorKind::kBadFile, "base64");
  expect_refused(small("normalizer", 5), ErrorKind::kBadFile, "normalizer");
  EXPECT_THROW(Tokenizer::from_json("{"), Error);
  EXPECT_THROW(Tokenizer::from_json("[]"), Error);
  EXPECT_THROW(Tokenizer::from_json(small().dump(), {}, {.pre = "qwen2"}), Error);
}

TEST(TokenizerJson, RefusesNestingWithoutEnd) {
  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 100; ++i) {
    deep = json{{"type", "Sequence"}, {"normalizers", json::array({deep})}};
  }
  expect_refused(small("normalizer", deep), ErrorKind::kBadFile, "deep");
}

}  // namespace
}  // namespace lemma::text
