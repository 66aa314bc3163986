// SPDX-License-Identifier: Apache-2.0
// TokenMatcher: finds the spellings of a set of tokens in text, leftmost first and the longest at
// each place, as Hugging Face tokenizers cut added tokens out. A token may want to stand alone as a
// word, and may swallow the white space beside it. Two matches never overlap. Cost: the text's
// length times the longest common start of a spelling. Immutable, so thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace lemma::text {

/// How an added token treats what stands beside it.
struct MatchRules {
  bool single_word = false;   ///< only where no word character touches it
  bool strips_left = false;   ///< takes the white space in front with it
  bool strips_right = false;  ///< and behind
};

class TokenMatcher {
 public:
  TokenMatcher();

  /// Adds a spelling; an empty one is ignored. If two tokens share a spelling, the first counts.
  /// Throws kBadFile when the spellings of a file fill 2^32 places.
  void add(std::string_view spelling, TokenId id, MatchRules rules = {});
  bool empty() const noexcept { return nodes_.size() == 1; }

  /// Bytes [begin, end) of the text are token `id`; they contain the white space that it took.
  struct Match {
    std::size_t begin, end;
    TokenId id;
  };
  /// The first match at or after `from`, where the last one ended.
  std::optional<Match> find(std::string_view text, std::size_t from) const noexcept;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Node {
    std::uint32_t first_child = kNone;
    std::uint32_t next_sibling = kNone;
    TokenId id = -1;  ///< the token that ends here, or -1
    unsigned char byte = 0;
    MatchRules rules;
  };

  std::uint32_t child(std::uint32_t node, unsigned char byte) const noexcept;

  std::vector<Node> nodes_;              ///< a trie over bytes; nodes_[0] is the root
  std::vector<std::uint32_t> by_first_;  ///< [256] the root's child of each byte
};

}  // namespace lemma::text
