// SPDX-License-Identifier: Apache-2.0
// PreTokenizer: cuts text into the words inside which byte-level BPE merges. The published rules
// are regular expressions; here each is a hand-written scan that takes one match after the other,
// so that a run of any length costs linear time and no stack. Immutable and thread-safe.
//
// Letters, numbers, punctuation and white space are Unicode's L, N, P and White_Space (utf8proc).
// Bytes that are not UTF-8 count as symbols, as U+FFFD does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lemma::text {

/// One code point of the text with what the rules ask about it.
struct TextChar {
  std::uint32_t offset;  ///< of its first byte
  char32_t code_point;
  bool letter, number, punctuation, space;
};

/// Decodes and classifies `text` into `out`.
void classify(std::string_view text, std::vector<TextChar>& out);

class PreTokenizer {
 public:
  /// The pre-tokenizer that `tokenizer.ggml.pre` names. Throws kUnsupported listing the known ones.
  static const PreTokenizer& named(std::string_view name);
  /// All names, in alphabetical order.
  static std::vector<std::string_view> names();

  /// Appends to `ends` where each word of chars [begin, end) ends, ascending; the last one is
  /// `end`. Nothing is dropped. An empty range gives no words.
  void split(std::span<const TextChar> chars, std::vector<std::uint32_t>& ends) const;

  /// A word that is a token as it stands becomes that token, whatever the merges say.
  bool ignores_merges() const noexcept { return ignores_merges_; }
  /// Files of this kind want BOS unless they say otherwise.
  bool adds_bos() const noexcept { return adds_bos_; }

  /// Cuts chars [begin, end) on its own and appends the ends of the pieces.
  using Stage = void (*)(std::span<const TextChar> chars, std::size_t begin, std::size_t end,
                         std::vector<std::uint32_t>& ends);

  constexpr PreTokenizer(std::span<const Stage> stages, bool ignores_merges, bool adds_bos)
      : stages_(stages), ignores_merges_(ignores_merges), adds_bos_(adds_bos) {}

 private:
  std::span<const Stage> stages_;  ///< each cuts the pieces of the one before further
  bool ignores_merges_;
  bool adds_bos_;
};

}  // namespace lemma::text
