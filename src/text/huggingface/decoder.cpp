// SPDX-License-Identifier: Apache-2.0
#include "text/huggingface/decoder.hpp"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/raise.hpp"
#include "text/byte_alphabet.hpp"
#include "text/huggingface/json_fields.hpp"
#include "text/huggingface/pattern.hpp"
#include "text/vocabulary.hpp"

namespace lemma::text::huggingface {
namespace {

constexpr std::string_view kWhere = "decoder";
constexpr int kDeepest = 20;

std::string replace_each(std::string text, std::string_view from, std::string_view to) {
  if (from.empty()) return text;
  std::string out;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(from, at)) != text.npos; at = found + from.size()) {
    out.append(text, at, found - at);
    out += to;
  }
  out.append(text, at, text.npos);
  return out;
}

/// Takes the blank in front of punctuation and contractions away, as the reference does.
std::string clean_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) text = replace_each(std::move(text), from, to);
  return text;
}

/// Up to `count` times `content` off the start, or the end.
std::string strip_content(std::string text, const std::string& content, int start, int stop) {
  for (int i = 0; i < start && text.starts_with(content); ++i) text.erase(0, content.size());
  for (int i = 0; i < stop && text.ends_with(content); ++i) {
    text.erase(text.size() - content.size());
  }
  return text;
}

}  // namespace

Decoder::Decoder(const Json& json) {
  if (!json.is_null()) {
    add(json, 0);
    return;
  }
  steps_.push_back([](std::string token) { return " " + token; });
  drops_first_blank_ = true;
}

std::string Decoder::piece(std::string token) const {
  for (const Step& step : steps_) token = step(std::move(token));
  return token;
}

void Decoder::add_strip(const Json& json) {
  const std::string content = string_of(json, "content", kWhere);
  const int start = number_of(json, "start", kWhere), stop = number_of(json, "stop", kWhere);
  if (content.empty()) return;
  if (!fused_) {
    steps_.push_back([content, start, stop](std::string token) {
      return strip_content(std::move(token), content, start, stop);
    });
    return;
  }
  if (content != " " || start != 1 || stop != 0) {
    base::raise(
        ErrorKind::kUnsupported,
        "tokenizer.json: decoder: Strip of '{}' ({} at the start, {} at the end) of a whole "
        "text is not supported, only one blank at the start is",
        content, start, stop);
  }
  drops_first_blank_ = true;
}

void Decoder::add(const Json& json, int depth) {
  if (depth > kDeepest) base::raise(ErrorKind::kBadFile, "tokenizer.json: decoders nest too deep");
  const std::string type = string_of(json, "type", kWhere);
  if (type == "Sequence") {
    for (const Json& step : array_of(json, "decoders", kWhere)) add(step, depth + 1);
  } else if (type == "ByteLevel") {
    steps_.push_back([](std::string token) { return bytes_of_spelling(token); });
  } else if (type == "Replace") {
    const auto pattern = std::make_shared<const Pattern>(member(json, "pattern", kWhere), kWhere);
    steps_.push_back([pattern, content = string_of(json, "content", kWhere)](std::string token) {
      return pattern->replace_all(token, content);
    });
  } else if (type == "ByteFallback") {
    steps_.push_back([](std::string token) {
      const std::optional<unsigned char> byte = byte_of_spelling(token);
      return byte ? std::string(1, static_cast<char>(*byte)) : token;
    });
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Strip") {
    add_strip(json);
  } else if (type == "Metaspace") {
    steps_.push_back([replacement = string_of(json, "replacement", kWhere)](std::string token) {
      return replace_each(std::move(token), replacement, " ");
    });
    const bool prefix = boolean_or(json, "add_prefix_space", kWhere, true);
    drops_first_blank_ =
        optional_string(json, "prepend_scheme", kWhere).value_or(prefix ? "always" : "never") !=
        "never";
  } else if (type == "WordPiece") {
    const std::string prefix = string_of(json, "prefix", kWhere);
    const bool cleanup = boolean_or(json, "cleanup", kWhere, true);
    steps_.push_back([prefix, cleanup](std::string token) {
      token = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
      return cleanup ? clean_up(std::move(token)) : token;
    });
    drops_first_blank_ = true;
  } else {
    unknown_type(type, kWhere,
                 "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece");
  }
}

}  // namespace lemma::text::huggingface
