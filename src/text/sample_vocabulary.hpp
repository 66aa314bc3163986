// SPDX-License-Identifier: Apache-2.0
// Small vocabularies built in code, for tests and the fuzz target: a SentencePiece one with all
// byte tokens and a byte-level one with all bytes, each with a few pieces, control tokens and
// user-defined tokens. Both are lossless: decode(encode(text)) gives the text's bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.hpp"
#include "text/tokenizer.hpp"
#include "weights/metadata.hpp"

namespace lemma::text::sample {

/// Collects tokens and turns them into `tokenizer.ggml.*`.
struct Builder {
  std::vector<std::string> tokens;
  std::vector<double> scores;
  std::vector<std::int64_t> kinds;
  std::vector<std::string> merges;

  TokenId add(std::string text, TokenKind kind = TokenKind::kNormal, double score = 0) {
    tokens.push_back(std::move(text));
    kinds.push_back(static_cast<std::int64_t>(kind));
    scores.push_back(score);
    return static_cast<TokenId>(tokens.size() - 1);
  }

  weights::Metadata metadata(const std::string& model) const {
    weights::Metadata result;
    result.add("tokenizer.ggml.model", {model, "string"});
    result.add("tokenizer.ggml.tokens", {tokens, "array of string"});
    result.add("tokenizer.ggml.token_type", {kinds, "array of i32"});
    if (model == "llama" || model == "t5") {
      result.add("tokenizer.ggml.scores", {scores, "array of f32"});
    }
    if (model == "gpt2" || model == "gemma4")
      result.add("tokenizer.ggml.merges", {merges, "array of string"});
    return result;
  }
};

inline void set_id(weights::Metadata& metadata, const std::string& role, TokenId id) {
  metadata.add("tokenizer.ggml." + role + "_token_id", {std::int64_t{id}, "u32"});
}

/// <unk> 0, <s> 1, </s> 2, bytes 3 to 258, then pieces; <|tool|> is user-defined.
inline Builder sentencepiece_builder() {
  Builder b;
  b.add("<unk>", TokenKind::kUnknown);
  b.add("<s>", TokenKind::kControl);
  b.add("</s>", TokenKind::kControl);
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    b.add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", TokenKind::kByte);
  }
  double score = -1;
  // "s>" and "<s" tempt a merge into "<s>", which text must never reach.
  for (const char* piece : {"\u2581",
                            "a",
                            "b",
                            "c",
                            "s",
                            "<",
                            ">",
                            "/",
                            "\u00e9",
                            "\u4e16",
                            "ab",
                            "\u2581a",
                            "bc",
                            "\u2581ab",
                            "\u2581\u2581",
                            "s>",
                            "<s",
                            "</s",
                            "\u4e16\u4e16",
                            "aa",
                            "aaaa",
                            "aaaaaaaa"}) {
    b.add(piece, TokenKind::kNormal, score--);
  }
  b.add("<|tool|>", TokenKind::kUserDefined);
  b.add("<|user|>", TokenKind::kControl);
  return b;
}

inline weights::Metadata sentencepiece() {
  weights::Metadata metadata = sentencepiece_builder().metadata("llama");
  set_id(metadata, "bos", 1);
  set_id(metadata, "eos", 2);
  set_id(metadata, "unknown", 0);
  return metadata;
}

/// A byte in GPT-2's alphabet.
inline std::string gpt2_spelling(unsigned char byte) {
  static const std::array<char32_t, 256> code_points = [] {
    std::array<char32_t, 256> result{};
    char32_t next = 0x100;
    for (std::uint32_t b = 0; b < 256; ++b) {
      const bool prints = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
      result[b] = prints ? char32_t{b} : next++;
    }
    return result;
  }();
  std::string out;
  base::append_utf8(out, code_points[byte]);
  return out;
}

/// Bytes 0 to 255 by value, then merged pieces and <|end|>, <|endoftext|>, <|eot_id|>, <|tool|>.
inline Builder byte_level_builder() {
  Builder b;
  for (int byte = 0; byte < 256; ++byte) b.add(gpt2_spelling(static_cast<unsigned char>(byte)));
  // "Ġ" spells a blank. The third merge names a part, "bc", that is no token.
  const std::pair<const char*, const char*> merges[] = {
      {"a", "b"}, {"Ġ", "a"}, {"b", "c"}, {"ab", "ab"}, {"Ġa", "bc"}, {"1", "2"}, {"Ġ", "Ġ"}};
  for (const auto& [left, right] : merges) {
    b.merges.push_back(std::string(left) + " " + right);
    const std::string merged = std::string(left) + right;
    if (merged != "bc") b.add(merged);
  }
  b.add("xyz");  // no merge builds it
  b.add("<|end|>", TokenKind::kControl);
  b.add("<|endoftext|>", TokenKind::kControl);
  b.add("<|eot_id|>", TokenKind::kControl);
  b.add("<|tool|>", TokenKind::kUserDefined);
  b.add("eot", TokenKind::kControl);  // a control token that a pre-token could spell
  return b;
}

inline void add_byte_tokens(Builder& b, double score = 0) {
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    b.add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", TokenKind::kByte, score);
  }
}

/// <pad>, </s>, <unk>, pieces with log probabilities, bytes.
inline Builder unigram_builder() {
  Builder b;
  b.add("<pad>", TokenKind::kControl);
  b.add("</s>", TokenKind::kControl);
  b.add("<unk>", TokenKind::kUnknown);
  const std::pair<const char*, double> pieces[] = {
      {"\u2581", -2}, {"a", -3}, {"b", -3}, {"c", -3}, {"ab", -2}, {"bc", -3}, {"\u2581a", -2.5}};
  for (const auto& [text, score] : pieces) b.add(text, TokenKind::kNormal, score);
  add_byte_tokens(b, -10);
  return b;
}

inline weights::Metadata unigram() {
  return unigram_builder().metadata("t5");
}

/// Characters merge by rank; blanks are spelt U+2581.
inline weights::Metadata gemma4() {
  Builder b;
  b.add("<pad>", TokenKind::kControl);
  b.add("<bos>", TokenKind::kControl);
  add_byte_tokens(b);
  for (const char* piece : {"\u2581", "a", "b", "\n", "ab", "\u2581ab", "\n\n"}) b.add(piece);
  b.merges = {"a b", "\u2581 ab"};
  weights::Metadata metadata = b.metadata("gemma4");
  set_id(metadata, "bos", 1);
  return metadata;
}

/// BERT's special tokens, and a few pieces.
inline weights::Metadata wordpiece() {
  Builder b;
  for (const char* text : {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}) {
    b.add(text, text == std::string("[UNK]") ? TokenKind::kUnknown : TokenKind::kControl);
  }
  for (const char* text : {"\u2581hel", "lo", "l", "o", "\u2581,", "\u2581.", "\u2581us", "us",
                           "\u2581z", "z", "\u25811", "1"}) {
    b.add(text);
  }
  return b.metadata("bert");
}

inline weights::Metadata byte_level(const std::string& pre) {
  const Builder builder = byte_level_builder();
  weights::Metadata metadata = builder.metadata("gpt2");
  metadata.add("tokenizer.ggml.pre", {pre, "string"});
  return metadata;
}

}  // namespace lemma::text::sample
