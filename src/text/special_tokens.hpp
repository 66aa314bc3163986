// SPDX-License-Identifier: Apache-2.0
// Which tokens have a role, and the rules that hang on them: BOS and EOS, the set that ends
// generation, blanks that a special token swallows. Files name some roles and leave others to the
// spelling; this is the one place where spellings are known.
#pragma once

#include <vector>

#include "text/tokenizer.hpp"
#include "text/vocabulary.hpp"
#include "weights/metadata.hpp"

namespace lemma::text {

struct SpecialRules {
  SpecialTokens tokens;
  std::vector<TokenId> end_of_generation;  ///< ascending
  bool adds_bos = false;
  bool adds_eos = false;
  /// [V] True for tokens after which white space in the text is dropped; empty if there are none.
  std::vector<bool> strips_right;
};

/// What a tokenizer model does where the file is silent.
struct SpecialDefaults {
  bool adds_bos = false;
  /// SentencePiece files may leave <s>, </s> and <unk> unnamed.
  bool classic_spellings = false;
};

/// Reads the ids and flags of `tokenizer.ggml.*`, finds well-known spellings, and marks tokens that
/// only their spelling shows to be control tokens as such in `vocabulary`. Throws kBadFile for an
/// id outside the vocabulary, or a flag that asks for a token which the file lacks.
SpecialRules read_special_rules(const weights::Metadata& metadata, Vocabulary& vocabulary,
                                SpecialDefaults defaults);

}  // namespace lemma::text
