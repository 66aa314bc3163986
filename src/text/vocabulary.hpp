// SPDX-License-Identifier: Apache-2.0
// Vocabulary: the tokens of a checkpoint with their kinds and scores, checked against each other,
// and the look-up from spelling to id. It knows nothing of how text is cut; see segmenter.hpp.
// Immutable after special_tokens.cpp has settled the kinds, so safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"
#include "weights/metadata.hpp"

namespace lemma::text {

class Vocabulary {
 public:
  /// Reads `tokenizer.ggml.tokens`, `.token_type` (absent: all normal) and `.scores` (absent:
  /// none). Throws kBadFile if an array has another length than the tokens, or a kind is unknown.
  explicit Vocabulary(const weights::Metadata& metadata);
  /// The same from lists; `scores` may be empty. An empty spelling is never found.
  Vocabulary(std::vector<std::string> texts, std::vector<TokenKind> kinds,
             std::vector<float> scores);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  std::size_t size() const noexcept { return texts_.size(); }
  bool contains(TokenId id) const noexcept {
    return id >= 0 && static_cast<std::size_t>(id) < texts_.size();
  }
  const std::string& text(TokenId id) const noexcept { return texts_[id]; }
  TokenKind kind(TokenId id) const noexcept { return kinds_[id]; }
  bool has_scores() const noexcept { return !scores_.empty(); }
  float score(TokenId id) const noexcept { return scores_[id]; }

  /// The first token that is spelt so, whatever its kind.
  std::optional<TokenId> find(std::string_view text) const noexcept;
  /// The same among tokens that ordinary text may become: not control, unknown or byte tokens.
  std::optional<TokenId> find_text(std::string_view text) const noexcept;
  std::size_t longest_text() const noexcept { return longest_; }

  void set_kind(TokenId id, TokenKind kind) noexcept { kinds_[id] = kind; }

 private:
  /// A place of the index: linear probing, at most half full. Nearly all look-ups while words are
  /// merged fail, and the mark lets them fail without a look at the spelling.
  struct Slot {
    std::uint32_t mark = 0;  ///< the upper bits of the spelling's hash
    TokenId id = -1;         ///< or -1: empty
  };

  void make_index();

  std::vector<std::string> texts_;
  std::vector<TokenKind> kinds_;
  std::vector<float> scores_;
  std::vector<Slot> index_;
  std::size_t longest_ = 0;  ///< bytes of the longest spelling
};

/// The byte that a byte token's spelling <0xNN> names, or nothing.
std::optional<unsigned char> byte_of_spelling(std::string_view text) noexcept;

}  // namespace lemma::text
