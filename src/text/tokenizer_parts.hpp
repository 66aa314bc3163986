// SPDX-License-Identifier: Apache-2.0
// What a Tokenizer is made of, and the two makers: one reads `tokenizer.ggml.*`, the other a
// tokenizer.json. Everything is immutable once made.
#pragma once

#include <memory>
#include <string>

#include "text/segmenter.hpp"
#include "text/special_tokens.hpp"
#include "text/token_matcher.hpp"
#include "text/tokenizer.hpp"
#include "text/vocabulary.hpp"
#include "weights/metadata.hpp"

namespace lemma::text {

struct TokenizerParts {
  std::string model;
  std::unique_ptr<Vocabulary> vocabulary;  ///< the segmenter refers to it
  SpecialRules special;
  /// Text gets a blank in front, which decode takes away again.
  bool space_prefix = false;
  /// Special tokens that are shown pass the segmenter's decode(), as all others do; else they
  /// appear as the vocabulary spells them.
  bool decodes_special = false;
  std::unique_ptr<const Segmenter> segmenter;
  TokenMatcher user_defined;  ///< what is cut out of any text
  TokenMatcher all_special;   ///< those, control and unknown tokens: with parse_special
};

TokenizerParts parts_from_ggml_keys(const weights::Metadata& metadata,
                                    const TokenizerOverrides& overrides);

/// `json` is a tokenizer.json, `config` a tokenizer_config.json or empty, `generation` a
/// generation_config.json or empty.
TokenizerParts parts_from_json(std::string_view json, std::string_view config,
                               std::string_view generation, const TokenizerOverrides& overrides);

}  // namespace lemma::text
