// SPDX-License-Identifier: Apache-2.0
// How BERT prepares text: cleaning, accents, case, and words at white space and punctuation
// (Google's BasicTokenizer, as Hugging Face's BertNormalizer and BertPreTokenizer have it). Pure
// and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/unicode.hpp"

namespace lemma::text {

enum class Accents : std::uint8_t {
  kKeep,
  kStrip,  ///< decompose (NFD) and drop nonspacing marks, as the published tokenizers do
  /// Keep the first code point of each decomposition and drop all marks, as the engines do that
  /// read GGUF. It differs for Hangul syllables and enclosing marks.
  kFirstOnly,
};

struct BertTextRules {
  bool clean = true;  ///< drop control characters; all white space becomes a blank
  /// U+0085 and its like are both: white space, as the engines that read GGUF have it, or control.
  bool white_space_first = false;
  bool delimit_cjk = true;  ///< blanks around every ideograph
  Accents accents = Accents::kStrip;
  bool lowercase = true;
};

std::string normalize_bert_text(std::string_view text, const BertTextRules& rules);

/// Calls `visit(word)` for every run of characters that are neither white space nor punctuation,
/// and for every punctuation character.
template <typename Visit>
void for_each_bert_word(std::string_view text, const Visit& visit) {
  std::size_t begin = 0, at = 0;
  const auto flush = [&] {
    if (begin < at) visit(text.substr(begin, at - begin));
  };
  while (at < text.size()) {
    const base::Decoded c = base::decode_utf8(text.substr(at));
    const bool space = is_white_space(c.code_point);
    if (!space && !is_punctuation(c.code_point)) {
      at += c.length;
      continue;
    }
    flush();
    if (!space) visit(text.substr(at, c.length));
    at += c.length;
    begin = at;
  }
  flush();
}

}  // namespace lemma::text
