// SPDX-License-Identifier: Apache-2.0
#include "text/bert_text.hpp"

namespace lemma::text {
namespace {

std::string clean(std::string_view text, const BertTextRules& rules) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    const bool blank = is_white_space(c);
    if (rules.clean) {
      const bool line_or_tab = c == '\t' || c == '\n' || c == '\r';
      const bool spared = line_or_tab || (blank && rules.white_space_first);
      if (c == 0 || c == base::kReplacementCharacter || (is_other(c) && !spared)) return;
    }
    if (rules.clean && blank) {
      out += ' ';
    } else if (rules.delimit_cjk && is_cjk_ideograph(c)) {
      out += ' ';
      out += bytes;
      out += ' ';
    } else {
      out += bytes;
    }
  });
  return out;
}

std::string strip_accents(std::string_view text, Accents how) {
  std::string out;
  const auto keep = [&](char32_t c, std::string_view bytes) {
    if (how == Accents::kStrip ? is_nonspacing_mark(c) : is_mark(c)) return;
    if (how == Accents::kFirstOnly && c >= 0x80 && c != base::kReplacementCharacter) {
      base::append_utf8(out, first_of_decomposition(c));
    } else {
      out += bytes;
    }
  };
  if (how == Accents::kStrip) {
    for_each_character(normalize(text, NormalForm::kNfd), keep);
  } else {
    for_each_character(text, keep);
  }
  return out;
}

}  // namespace

std::string normalize_bert_text(std::string_view text, const BertTextRules& rules) {
  std::string out = clean(text, rules);
  if (rules.accents != Accents::kKeep) out = strip_accents(out, rules.accents);
  if (rules.lowercase) {
    std::string lower;
    lower.reserve(out.size());
    for_each_character(out, [&](char32_t c, std::string_view bytes) {
      if (c == base::kReplacementCharacter) {
        lower += bytes;  // as it was, if it was no UTF-8
      } else {
        append_lower(lower, c);
      }
    });
    out = std::move(lower);
  }
  return out;
}

}  // namespace lemma::text
