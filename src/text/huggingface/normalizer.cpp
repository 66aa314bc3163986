// SPDX-License-Identifier: Apache-2.0
#include "text/huggingface/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/raise.hpp"
#include "text/bert_text.hpp"
#include "text/byte_alphabet.hpp"
#include "text/charsmap.hpp"
#include "text/huggingface/base64.hpp"
#include "text/huggingface/json_fields.hpp"
#include "text/huggingface/pattern.hpp"

namespace lemma::text::huggingface {
namespace {

constexpr std::string_view kWhere = "normalizer";
constexpr int kDeepest = 20;

std::string lowercase(std::string text) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (c == base::kReplacementCharacter) {
      out += bytes;
    } else {
      append_lower(out, c);
    }
  });
  return out;
}

std::string strip_accents(std::string text) {
  std::string out;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (!is_mark(c)) out += bytes;
  });
  return out;
}

/// The rules of SentencePiece's "nmt" normalization.
std::string nmt(std::string text) {
  std::string out;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    const bool dropped = (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) ||
                         c == 0x7f || c == 0x8f || c == 0x9f;
    const bool blank = c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xfeff || (c == 0xfffd && bytes.size() == 3);
    if (blank) {
      out += ' ';
    } else if (!dropped) {
      out += bytes;
    }
  });
  return out;
}

std::string strip(std::string text, bool left, bool right) {
  std::size_t begin = text.size(), end = 0, at = 0;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (!is_white_space(c)) {
      begin = std::min(begin, at);
      end = at + bytes.size();
    }
    at += bytes.size();
  });
  if (!left) begin = 0;
  if (!right) end = text.size();
  return begin < end ? text.substr(begin, end - begin) : std::string();
}

/// The table is asked for whole grapheme clusters of fewer than six bytes first and then for single
/// characters, the shortest entry counting: what the reference library does.
std::string apply_charsmap(const Charsmap& map, const std::string& text) {
  std::string out;
  out.reserve(text.size());
  const auto each_of = [&](std::string_view cluster) {
    if (cluster.size() < 6) {
      if (const auto found = map.shortest(cluster)) {
        out += found->replacement;
        return;
      }
    }
    for_each_character(cluster, [&](char32_t, std::string_view bytes) {
      const auto found = map.shortest(bytes);
      out += found ? found->replacement : bytes;
    });
  };
  utf8proc_int32_t state = 0, last = 0;
  std::size_t begin = 0, at = 0;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    const auto code_point = static_cast<utf8proc_int32_t>(c);
    if (at > 0 && utf8proc_grapheme_break_stateful(last, code_point, &state)) {
      each_of(std::string_view(text).substr(begin, at - begin));
      begin = at;
    }
    last = code_point;
    at += bytes.size();
  });
  if (begin < at) each_of(std::string_view(text).substr(begin));
  return out;
}

BertTextRules bert_rules(const Json& json) {
  BertTextRules rules;
  rules.clean = boolean_or(json, "clean_text", kWhere, true);
  rules.delimit_cjk = boolean_or(json, "handle_chinese_chars", kWhere, true);
  rules.lowercase = boolean_or(json, "lowercase", kWhere, true);
  rules.accents =
      boolean_or(json, "strip_accents", kWhere, rules.lowercase) ? Accents::kStrip : Accents::kKeep;
  return rules;
}

Normalizer::Step make_form(NormalForm form) {
  return [form](std::string text) { return normalize(text, form); };
}

Normalizer::Step make_step(const Json& json) {
  const std::string type = string_of(json, "type", kWhere);
  if (type == "NFC") return make_form(NormalForm::kNfc);
  if (type == "NFD") return make_form(NormalForm::kNfd);
  if (type == "NFKC") return make_form(NormalForm::kNfkc);
  if (type == "NFKD") return make_form(NormalForm::kNfkd);
  if (type == "Lowercase") return lowercase;
  if (type == "StripAccents") return strip_accents;
  if (type == "Nmt") return nmt;
  if (type == "ByteLevel") return [](std::string text) { return spelling_of_bytes(text); };
  if (type == "Strip") {
    const bool left = boolean_or(json, "strip_left", kWhere, true);
    const bool right = boolean_or(json, "strip_right", kWhere, true);
    return [left, right](std::string text) { return strip(std::move(text), left, right); };
  }
  if (type == "Prepend") {
    return [prefix = string_of(json, "prepend", kWhere)](std::string text) {
      return text.empty() ? text : prefix + text;
    };
  }
  if (type == "Replace") {
    const auto pattern = std::make_shared<const Pattern>(member(json, "pattern", kWhere), kWhere);
    return [pattern, content = string_of(json, "content", kWhere)](std::string text) {
      return pattern->replace_all(text, content);
    };
  }
  if (type == "BertNormalizer") {
    return
        [rules = bert_rules(json)](std::string text) { return normalize_bert_text(text, rules); };
  }
  if (type == "Precompiled") {
    const std::optional<std::string> blob = optional_string(json, "precompiled_charsmap", kWhere);
    const auto map = std::make_shared<const Charsmap>(decode_base64(blob.value_or("")));
    return [map](std::string text) { return apply_charsmap(*map, text); };
  }
  unknown_type(type, kWhere,
               "BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, "
               "Prepend, Replace, Sequence, Strip, StripAccents");
}

}  // namespace

Normalizer::Normalizer(const Json& json) {
  add(json, 0);
}

void Normalizer::add(const Json& json, int depth) {
  if (json.is_null()) return;
  if (depth > kDeepest)
    base::raise(ErrorKind::kBadFile, "tokenizer.json: normalizers nest too deep");
  if (member(json, "type", kWhere) == "Sequence") {
    for (const Json& step : array_of(json, "normalizers", kWhere)) add(step, depth + 1);
    return;
  }
  steps_.push_back(make_step(json));
}

std::string Normalizer::run(std::string text) const {
  for (const Step& step : steps_) text = step(std::move(text));
  return text;
}

}  // namespace lemma::text::huggingface
