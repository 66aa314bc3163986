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
  /// What stands around a text that is encoded with special tokens.
  std::vector<TokenId> before, after;
  /// [V] True for tokens after which white space in the text is dropped; empty if there are none.
  std::vector<bool> strips_right;
};

/// What a tokenizer model does where the file is silent.
struct SpecialDefaults {
  bool adds_bos = false;
  bool adds_eos = false;
  bool adds_separator = false;
  /// SentencePiece files may leave <s>, </s> and <unk> unnamed.
  bool classic_spellings = false;
  bool bert_spellings = false;  ///< BERT files may leave [CLS], [SEP] and [UNK] unnamed
};

/// Completes `tokens` by well-known spellings and gives the ends of generation; tokens that only
/// their spelling shows to be control tokens are marked so in `vocabulary`.
std::vector<TokenId> settle_special_tokens(SpecialTokens& tokens, Vocabulary& vocabulary,
                                           SpecialDefaults defaults);

/// Reads the ids and flags of `tokenizer.ggml.*`, finds well-known spellings, and marks tokens that
/// only their spelling shows to be control tokens as such in `vocabulary`. Throws kBadFile for an
/// id outside the vocabulary, or a flag that asks for a token which the file lacks.
SpecialRules read_special_rules(const weights::Metadata& metadata, Vocabulary& vocabulary,
                                SpecialDefaults defaults);

}  // namespace lemma::text
