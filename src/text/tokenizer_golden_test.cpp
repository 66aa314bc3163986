// SPDX-License-Identifier: Apache-2.0
// Published vocabularies against ids of independent engines: every .inp/.out pair and every string
// of .extra.json, with and without special tokens, and the text back, whole and streamed.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/utf8.hpp"
#include "test_data.hpp"
#include "text/detokenizer.hpp"
#include "text/tokenizer.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::text {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The tokenizer of a file, read once for all tests.
std::shared_ptr<const Tokenizer> load(const std::filesystem::path& path) {
  static std::map<std::filesystem::path, std::shared_ptr<const Tokenizer>> read;
  std::shared_ptr<const Tokenizer>& tokenizer = read[path];
  if (!tokenizer) tokenizer = Tokenizer::from_metadata(weights::open_checkpoint(path)->metadata());
  return tokenizer;
}

/// Text fields whose bytes are not UTF-8 are stored as `<name>_hex`.
std::string text_field(const json& entry, const std::string& name) {
  if (!entry.contains(name + "_hex")) return entry.at(name).get<std::string>();
  const std::string hex = entry.at(name + "_hex").get<std::string>();
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

/// The text of `ids`, taken token by token; no chunk may end inside a character.
std::string streamed(const Tokenizer& tokenizer, const Ids& ids, InvalidBytes invalid) {
  Detokenizer out(tokenizer,
                  {.show_special = false, .at_text_start = true, .invalid_bytes = invalid});
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = out.push(id);
    if (invalid == InvalidBytes::kReplace) {
      EXPECT_TRUE(base::is_valid_utf8(part)) << "a chunk ends inside a character";
    }
    text += part;
  }
  return text + out.finish();
}

struct Case {
  std::string vocabulary;  ///< path below the data folder
  std::string extra;       ///< the .extra.json
  std::string pairs;       ///< .inp and .out without the suffix, or empty
  /// The peer drops blanks in front of some punctuation when it turns ids of this vocabulary back
  /// into text. lemma gives the text as it was.
  bool peer_cleans_up = false;
  /// Case, accents and blanks are gone from the ids.
  bool lossy = false;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.vocabulary;
}

Case shared_case(const std::string& name, bool pairs, bool peer_cleans_up, bool lossy = false) {
  const std::string stem = "tokenizers/ggml-vocab-" + name + ".gguf";
  return {stem, stem + ".extra.json", pairs ? stem : "", peer_cleans_up, lossy};
}

class TokenizerGolden : public testing::TestWithParam<Case> {};

TEST_P(TokenizerGolden, GivesTheIdsOfThePairs) {
  if (GetParam().pairs.empty()) {
    SUCCEED() << "this vocabulary has no pair";
    return;
  }
  LEMMA_TEST_DATA_OR_SKIP(vocabulary, GetParam().vocabulary);
  LEMMA_TEST_DATA_OR_SKIP(inputs, GetParam().pairs + ".inp");
  LEMMA_TEST_DATA_OR_SKIP(outputs, GetParam().pairs + ".out");
  const auto tokenizer = load(vocabulary);
  const std::string separator = "\n__ggml_vocab_test__\n";
  const std::string all = read_file(inputs);
  std::istringstream lines(read_file(outputs));
  std::size_t cases = 0, at = 0;
  for (std::size_t end; (end = all.find(separator, at)) != std::string::npos;
       at = end + separator.size()) {
    const std::string text = all.substr(at, end - at);
    std::string line;
    ASSERT_TRUE(std::getline(lines, line)) << "more inputs than outputs";
    std::istringstream numbers(line);
    const Ids expected{std::istream_iterator<TokenId>(numbers), {}};
    const Ids ids = tokenizer->encode(text, {.add_special = false});
    EXPECT_EQ(ids, expected) << "text: " << text;
    EXPECT_EQ(streamed(*tokenizer, ids, InvalidBytes::kKeep), tokenizer->decode(ids));
    if (!GetParam().lossy) {
      EXPECT_EQ(tokenizer->decode(ids), text);
    }
    ++cases;
  }
  EXPECT_GE(cases, 40u);
}

TEST_P(TokenizerGolden, GivesIdsAndTextOfTheExtraStrings) {
  LEMMA_TEST_DATA_OR_SKIP(vocabulary, GetParam().vocabulary);
  LEMMA_TEST_DATA_OR_SKIP(extra, GetParam().extra);
  const auto tokenizer = load(vocabulary);
  const json strings = json::parse(read_file(extra)).at("strings");
  ASSERT_GE(strings.size(), 60u);
  std::size_t cleaned = 0;
  for (const json& entry : strings) {
    const std::string text = text_field(entry, "text");
    SCOPED_TRACE("text: " + text);
    const auto encode = [&](bool add, bool parse) {
      return tokenizer->encode(text, {.add_special = add, .parse_special = parse});
    };
    const Ids ids = encode(false, false), parsed = encode(false, true);
    EXPECT_EQ(ids, entry.at("ids").get<Ids>());
    EXPECT_EQ(parsed, entry.at("ids_parse_special").get<Ids>());
    EXPECT_EQ(encode(true, false), entry.at("ids_add_special").get<Ids>());
    EXPECT_EQ(encode(true, true), entry.at("ids_add_and_parse_special").get<Ids>());

    const std::string plain = tokenizer->decode(ids);
    const std::string shown = tokenizer->decode(parsed, {.show_special = true});
    if (GetParam().peer_cleans_up && text_field(entry, "detokenized") != plain) {
      if (!GetParam().lossy) {
        EXPECT_EQ(plain, text) << "where the peer's text differs, lemma's must be the input";
      }
      ++cleaned;
    } else {
      EXPECT_EQ(plain, text_field(entry, "detokenized"));
      EXPECT_EQ(shown, text_field(entry, "detokenized_parse_special_unparsed"));
    }
    EXPECT_EQ(streamed(*tokenizer, ids, InvalidBytes::kKeep), plain);
    EXPECT_EQ(streamed(*tokenizer, ids, InvalidBytes::kReplace), base::repair_utf8(plain));
  }
  EXPECT_LE(cleaned, GetParam().lossy ? 8u : 3u);
}

TEST_P(TokenizerGolden, StreamsTheSameTextFromEverySplit) {
  LEMMA_TEST_DATA_OR_SKIP(vocabulary, GetParam().vocabulary);
  LEMMA_TEST_DATA_OR_SKIP(extra, GetParam().extra);
  const auto tokenizer = load(vocabulary);
  const json strings = json::parse(read_file(extra)).at("strings");
  ASSERT_GE(strings.size(), 60u);
  for (const json& entry : strings) {
    const Ids ids = tokenizer->encode(text_field(entry, "text"), {.add_special = false});
    const std::string whole = tokenizer->decode(ids, {.at_text_start = false});
    // Pieces of any two parts, one after the other, are the whole, bytes held back included.
    for (std::size_t cut = 0; cut <= ids.size(); ++cut) {
      const std::span<const TokenId> all(ids);
      ASSERT_EQ(tokenizer->decode(all.first(cut), {.at_text_start = false}) +
                    tokenizer->decode(all.subspan(cut), {.at_text_start = false}),
                whole);
      Detokenizer out(*tokenizer, {.invalid_bytes = InvalidBytes::kKeep});
      std::string text;
      for (const TokenId id : all.first(cut)) text += out.push(id);
      text += out.finish();  // a stream that stops here has lost nothing
      ASSERT_EQ(text, tokenizer->decode(all.first(cut), {.at_text_start = false}));
      for (const TokenId id : all.subspan(cut)) text += out.push(id);
      ASSERT_EQ(text + out.finish(), whole);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Published, TokenizerGolden,
    testing::Values(shared_case("llama-spm", true, false), shared_case("phi-3", true, false),
                    shared_case("baichuan", false, false), shared_case("llama-bpe", true, true),
                    shared_case("qwen2", true, false), shared_case("gpt-2", true, true),
                    shared_case("starcoder", true, true), shared_case("falcon", true, true),
                    shared_case("deepseek-llm", true, false),
                    shared_case("deepseek-coder", true, false),
                    shared_case("bert-bge", true, true, true),
                    Case{"models/stories260K-f32.gguf", "goldens/stories260K/tokenizer.extra.json",
                         ""}),
    [](const auto& golden) {
      std::string name = std::filesystem::path(golden.param.vocabulary).stem().string();
      for (char& c : name) {
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      }
      return name;
    });

}  // namespace
}  // namespace lemma::text
