// SPDX-License-Identifier: Apache-2.0
// Segmenter: how one tokenizer model turns a stretch of ordinary text into ids and an id into
// bytes. Special tokens never reach it: Tokenizer cuts them out first. A segmenter is immutable;
// what changes during a call lives in the caller's MergeScratch.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/merge.hpp"
#include "text/tokenizer.hpp"
#include "text/vocabulary.hpp"
#include "weights/metadata.hpp"

namespace lemma::text {

class Segmenter {
 public:
  virtual ~Segmenter() = default;

  /// Appends the ids of `text`. `after_special`: the text stands at the start or behind a token
  /// that was cut out. Throws kBadFile if the vocabulary cannot express a byte of it.
  virtual void encode(std::string_view text, bool after_special, MergeScratch& scratch,
                      std::vector<TokenId>& out) const = 0;
  /// Appends the bytes of a normal, unused or byte token.
  virtual void decode(TokenId id, std::string& out) const = 0;
};

/// `tokenizer.ggml.model = llama`: pieces are merged by score, in text whose blanks are spelt
/// U+2581; characters without a piece become byte tokens. The vocabulary must outlive it.
std::unique_ptr<const Segmenter> make_sentencepiece(const Vocabulary& vocabulary,
                                                    std::optional<TokenId> unknown,
                                                    bool add_space_prefix);

/// `tokenizer.ggml.model = gpt2`: words are cut by the pre-tokenizer and merged by rank, over bytes
/// spelt in GPT-2's printable alphabet. The vocabulary must outlive it.
std::unique_ptr<const Segmenter> make_byte_level_bpe(const weights::Metadata& metadata,
                                                     const Vocabulary& vocabulary);

}  // namespace lemma::text
