// SPDX-License-Identifier: Apache-2.0
// TokenTrie: a vocabulary's pieces of text as a tree of bytes, in the order of a walk through it,
// so that all tokens with a common beginning are tried or left out together. Control tokens, the
// unknown token and reserved places are no text and are not in it; tokens that end a generation are
// listed apart. Immutable, so safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace lemma::text::constraint {

class TokenTrie {
 public:
  /// One byte behind the node whose depth is one less. Depth 1 begins a token.
  struct Node {
    std::uint32_t end;          ///< index behind all nodes below this one
    std::uint32_t first, last;  ///< ranks [first, last) of the tokens that end here
    std::uint16_t depth;
    std::uint8_t byte;
  };
  /// A token of a list in ascending rank, with the bytes that it shares with the one before.
  struct Entry {
    std::uint32_t rank;
    std::uint32_t common;
  };

  explicit TokenTrie(const Tokenizer& tokenizer);

  std::size_t vocabulary_size() const noexcept { return vocabulary_; }
  std::span<const Node> nodes() const noexcept { return nodes_; }
  /// The bytes of the deepest node.
  std::size_t depth() const noexcept { return depth_; }
  /// Tokens with text are ranked by it.
  TokenId id(std::uint32_t rank) const noexcept { return ids_[rank]; }
  std::string_view text_of_rank(std::uint32_t rank) const noexcept {
    return std::string_view(pool_).substr(offsets_[rank], offsets_[rank + 1] - offsets_[rank]);
  }
  /// The text of any token; empty for those that are none.
  std::string_view text(TokenId id) const noexcept {
    const std::uint32_t rank = ranks_[static_cast<std::size_t>(id)];
    return rank == kNone ? std::string_view{} : text_of_rank(rank);
  }
  /// Ascending ranks as a list to walk along.
  std::vector<Entry> list_of(std::span<const std::uint32_t> ranks) const;
  /// The tokens of more than `bytes` bytes.
  std::vector<Entry> longer_than(std::size_t bytes) const;
  std::span<const TokenId> ends() const noexcept { return ends_; }
  bool is_end(TokenId id) const noexcept;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  void make_nodes();

  std::size_t vocabulary_ = 0, depth_ = 0;
  std::string pool_;                    ///< all texts, by rank
  std::vector<std::uint32_t> offsets_;  ///< [ranks + 1] into pool_
  std::vector<TokenId> ids_;            ///< by rank
  std::vector<std::uint32_t> ranks_;    ///< by id
  std::vector<Node> nodes_;
  std::vector<TokenId> ends_;  ///< ascending
};

}  // namespace lemma::text::constraint
