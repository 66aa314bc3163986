// SPDX-License-Identifier: Apache-2.0
// Wrapper: breaks the lines of a text that is still coming between words, so that no word is torn
// at the edge of a terminal. A word is held back until it is whole. Lines inside ``` fences are
// left alone: code is copied from the screen.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lemma::cli::chat {

class Wrapper {
 public:
  /// What can be printed now, on a screen of `columns` cells (0: nothing is broken). `text` is
  /// whole characters of valid UTF-8.
  std::string take(std::string_view text, std::size_t columns);
  /// What is held back.
  std::string flush();
  /// The next text begins a line.
  void restart();

 private:
  void put_word();
  void put_line_break();

  std::string out_;
  std::string blanks_, word_, line_;  ///< held blanks, a held word, the first bytes of the line
  std::size_t word_cells_ = 0, column_ = 0, columns_ = 0;
  bool fenced_ = false;
  bool parted_ = false;  ///< the word is the rest of one that no line could hold
};

}  // namespace lemma::cli::chat
