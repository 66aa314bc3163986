// SPDX-License-Identifier: Apache-2.0
// WordPiece: a word takes the longest piece that it starts with, then the longest that continues
// it, and so on; a word with a part that is no piece, or with too many characters, is the unknown
// token. Immutable once filled, so thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/flat_map.hpp"
#include "text/segmenter.hpp"

namespace lemma::text {

class WordPiece {
 public:
  WordPiece(std::optional<TokenId> unknown, std::size_t most_characters);

  /// A piece that begins words, or one that goes on inside them. The first of two equal ones
  /// counts.
  void add_start(std::string_view text, TokenId id) { add(0, text, id); }
  void add_rest(std::string_view text, TokenId id) { add(1, text, id); }

  /// Appends the ids of a word. Throws kBadFile if it is unknown and there is no unknown token.
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  void add(std::uint32_t root, std::string_view text, TokenId id);

  std::optional<TokenId> unknown_;
  std::size_t most_characters_;
  FlatMap<std::uint32_t> edges_;  ///< by node << 8 | byte
  std::vector<TokenId> nodes_;    ///< 0 and 1 are the roots
};

}  // namespace lemma::text
