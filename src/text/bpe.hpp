// SPDX-License-Identifier: Apache-2.0
// Bpe: byte-pair encoding by ranks. A word starts as its bytes or its characters; of all neighbours
// that have a merge rule the lowest rank merges first, the leftmost of equal ones, until none is
// left. It knows nothing of how text is cut into words or of what files look like: those who read
// files fill it. Immutable once filled, so thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/flat_map.hpp"
#include "text/segmenter.hpp"

namespace lemma::text {

struct BpeOptions {
  bool by_bytes = true;        ///< words start as bytes, else as characters
  bool ignore_merges = false;  ///< a word that is a token is that token
  bool byte_fallback = false;  ///< a character without a token becomes byte tokens <0xNN>
  /// What a character or byte without a token becomes otherwise. Without one it is dropped, as the
  /// references do (Falcon's vocabulary lacks some control characters), and counted.
  std::optional<TokenId> unknown;
  /// What has no token is dropped before merging, so that its neighbours meet (Hugging Face), and
  /// not after (engines that read GGUF).
  bool drops_before_merging = false;
  bool fuse_unknown = false;  ///< neighbouring unknown characters make one unknown token
  std::string prefix;  ///< in front of every character of a word but the first, in the vocabulary
  std::string suffix;  ///< behind the last character of a word, in the vocabulary
};

class Bpe {
 public:
  /// Tokens have the numbers 0 to `tokens` - 1.
  Bpe(BpeOptions options, std::size_t tokens);

  /// Ordinary text may become token `id`, which is spelt `text` (as it stands in a word). The first
  /// of two with one spelling counts. All tokens come before the merges.
  void add_token(std::string_view text, TokenId id);
  /// Byte `byte` has a token of its own, to fall back to.
  void add_byte_token(unsigned char byte, TokenId id);
  /// `left` and `right` merge to `left + right` (less a prefix of `right`). The parts need not be
  /// tokens: what merges no further and is none is taken apart. The first of two rules counts.
  void add_merge(std::string_view left, std::string_view right, std::size_t rank);
  /// Call once, after all else.
  void finish();

  /// True if a token is spelt so.
  bool has_token(std::string_view text) const;

  /// Appends the ids of a word.
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Rule {
    std::int32_t rank = 0;
    std::int32_t symbol = 0;
  };

  std::int32_t symbol_of(const std::string& text);
  bool is_token(std::int32_t symbol) const noexcept {
    return symbol >= 0 && static_cast<std::size_t>(symbol) < tokens_;
  }
  void push_unknown(std::size_t begin, std::size_t end, MergeScratch& scratch) const;
  void start_with_bytes(std::string_view word, MergeScratch& scratch) const;
  void start_with_characters(std::string_view word, MergeScratch& scratch) const;
  void emit(std::string_view word, MergeScratch& merge, std::vector<TokenId>& out) const;
  void emit_bytes(std::string_view bytes, bool& after_unknown, MergeScratch& merge,
                  std::vector<TokenId>& out) const;
  bool has_bytes(std::string_view text) const noexcept;

  BpeOptions options_;
  std::size_t tokens_;
  std::size_t extra_symbols_ = 0;                          ///< symbols that are no tokens
  std::unordered_map<std::string, std::int32_t> symbols_;  ///< by text
  FlatMap<Rule> rules_;                                    ///< by both symbols
  std::array<TokenId, 256> byte_tokens_;                   ///< or -1
  std::array<std::int32_t, 256> symbols_of_bytes_{};
  std::size_t longest_ = 0;  ///< bytes of the longest token
};

}  // namespace lemma::text
