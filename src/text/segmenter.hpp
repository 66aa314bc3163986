// SPDX-License-Identifier: Apache-2.0
// Segmenter: how one tokenizer model turns a stretch of ordinary text into ids and an id into
// bytes. Tokens that are cut out of raw text never reach it: Tokenizer finds them first. A
// segmenter is immutable; what changes during a call lives in the caller's EncodeScratch.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/merge.hpp"
#include "text/pretokenizer.hpp"
#include "text/tokenizer.hpp"
#include "text/vocabulary.hpp"
#include "text/word_cache.hpp"
#include "weights/metadata.hpp"

namespace lemma::text {

/// The buffers of one encode() call.
struct EncodeScratch {
  MergeScratch merge;
  SplitScratch split;
  WordCache words;
  std::vector<std::uint32_t> ends;

  /// Characters read, table look-ups made and neighbours compared.
  std::size_t steps() const noexcept { return merge.steps + split.regex.steps; }
};

/// Where a stretch of text stands.
struct Stretch {
  bool at_start = false;       ///< nothing stands before it
  bool after_special = false;  ///< it stands at the start or behind a token that was cut out
};

class Segmenter {
 public:
  virtual ~Segmenter() = default;

  /// Appends the ids of `text`. Throws kBadFile if the vocabulary cannot express a byte of it.
  virtual void encode(std::string_view text, Stretch stretch, EncodeScratch& scratch,
                      std::vector<TokenId>& out) const = 0;
  /// Appends the bytes of a normal, unused or byte token.
  virtual void decode(TokenId id, std::string& out) const = 0;
};

/// `tokenizer.ggml.model = llama`: pieces are merged by score, in text whose blanks are spelt
/// U+2581; characters without a piece become byte tokens. The vocabulary must outlive it.
std::unique_ptr<const Segmenter> make_sentencepiece(const Vocabulary& vocabulary,
                                                    std::optional<TokenId> unknown,
                                                    bool add_space_prefix);

/// `tokenizer.ggml.model = gpt2`: words are cut by the rules of `pre` and merged by rank, over
/// bytes spelt in GPT-2's printable alphabet, or over characters where the rules spell blanks
/// U+2581. The vocabulary must outlive it.
std::unique_ptr<const Segmenter> make_rank_bpe(const weights::Metadata& metadata,
                                               const Vocabulary& vocabulary, std::string_view pre);

/// `tokenizer.ggml.model = t5`: the most probable sequence of pieces, after the normalization that
/// the file carries; characters without a piece become byte tokens or the unknown token.
std::unique_ptr<const Segmenter> make_unigram(const weights::Metadata& metadata,
                                              const Vocabulary& vocabulary,
                                              std::optional<TokenId> unknown,
                                              bool add_space_prefix);

/// `tokenizer.ggml.model = bert`: words are cut at white space and punctuation, and each takes the
/// longest pieces from its left; a word with a part that is no piece is the unknown token.
std::unique_ptr<const Segmenter> make_wordpiece(const weights::Metadata& metadata,
                                                const Vocabulary& vocabulary,
                                                std::optional<TokenId> unknown);

}  // namespace lemma::text
