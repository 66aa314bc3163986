// SPDX-License-Identifier: Apache-2.0
// SentencePiece's spelling of blanks as U+2581, and where a text spelt so may be cut into words
// without changing what merging gives: before a U+2581 behind a byte that no piece has in front of
// one. Merges then cannot reach across, and words repeat, so that a WordCache helps.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace lemma::text {

inline constexpr std::string_view kSpeltBlank = "\xe2\x96\x81";  // U+2581

std::string spell_blanks(std::string_view text, bool blank_in_front = false);
std::string read_blanks(std::string_view spelt);

class BlankCuts {
 public:
  /// A piece that merging could give.
  void add(std::string_view piece) {
    for (std::size_t at = 1; (at = piece.find(kSpeltBlank, at)) != piece.npos; ++at) {
      joined_[static_cast<unsigned char>(piece[at - 1])] = true;
    }
  }
  /// True if merges may reach from `before` into the U+2581 behind it.
  bool joins(char before) const noexcept { return joined_[static_cast<unsigned char>(before)]; }

 private:
  std::array<bool, 256> joined_{};
};

/// Calls `encode(word)` for every word of `text`, in order.
template <typename Encode>
void encode_between_blanks(std::string_view text, const BlankCuts& cuts, const Encode& encode) {
  std::size_t begin = 0;
  for (std::size_t at = 1; (at = text.find(kSpeltBlank, at)) != text.npos; ++at) {
    if (cuts.joins(text[at - 1])) continue;
    encode(text.substr(begin, at - begin));
    begin = at;
  }
  if (begin < text.size()) encode(text.substr(begin));
}

}  // namespace lemma::text
