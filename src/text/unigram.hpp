// SPDX-License-Identifier: Apache-2.0
// Unigram: of all ways to write a text as a sequence of pieces, the one with the highest sum of
// scores (log probabilities), by the Viterbi algorithm over a trie. Where no piece is a single
// character, the character itself is a candidate at the price of the unlikeliest piece less 10;
// neighbouring ones are one unknown part, which becomes byte tokens or the unknown token.
// Kudo, "Subword regularization", ACL 2018. Immutable once filled, so thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/flat_map.hpp"
#include "text/segmenter.hpp"

namespace lemma::text {

class Unigram {
 public:
  /// Without an unknown token, a text that needs one is an error.
  explicit Unigram(std::optional<TokenId> unknown);

  /// Text may become token `id`. The first of two pieces with one spelling counts.
  void add_piece(std::string_view text, TokenId id, double score);
  /// The price of an unknown character follows from the lowest score told here.
  void see_score(double score);
  /// Token of a byte; they are used if all bytes of an unknown part have one.
  void add_byte_token(unsigned char byte, TokenId id);

  /// Appends the ids of `text` (less than 4 GiB).
  void encode(std::string_view text, EncodeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  static constexpr TokenId kUnknownPart = -1;
  struct Node {
    TokenId id = -1;
    double score = 0;
  };
  /// The best way to write the text up to a place.
  struct Best {
    double score;
    std::uint32_t begin;  ///< of its last piece
    TokenId id;           ///< of its last piece, or kUnknownPart
    bool reached;
  };

  void extend(std::string_view text, std::size_t at, std::vector<Best>& best,
              std::size_t& steps) const;
  void emit_unknown(std::string_view part, std::vector<TokenId>& out) const;

  std::optional<TokenId> unknown_;
  FlatMap<std::uint32_t> edges_;  ///< by node << 8 | byte
  std::vector<Node> nodes_;
  std::array<TokenId, 256> byte_tokens_;
  double lowest_ = 0;
  bool has_score_ = false;
};

}  // namespace lemma::text
