// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/wrapper.hpp"

#include <algorithm>
#include <cwchar>
#include <utility>

#include "base/utf8.hpp"

namespace lemma::cli::chat {
namespace {

constexpr std::string_view kFence = "```";

std::size_t cells_of(char32_t c) {
  const int cells = ::wcwidth(static_cast<wchar_t>(c));
  return cells < 0 ? 1 : static_cast<std::size_t>(cells);  // unknown to the locale: as most are
}

}  // namespace

void Wrapper::put_word() {
  const std::size_t needed = column_ + blanks_.size() + word_cells_;
  const bool may_break = !word_.empty() && columns_ > 0 && !fenced_ && !parted_ && column_ > 0;
  if (may_break && needed > columns_) {
    out_ += '\n';
    column_ = 0;
  } else {
    out_ += blanks_;
    column_ += blanks_.size();
  }
  out_ += word_;
  column_ += word_cells_;
  if (columns_ > 0 && column_ > columns_) column_ %= columns_;  // the terminal went on below
  blanks_.clear();
  word_.clear();
  word_cells_ = 0;
}

void Wrapper::put_line_break() {
  put_word();
  out_ += '\n';
  if (line_ == kFence) fenced_ = !fenced_;
  line_.clear();
  column_ = 0;
  parted_ = false;
}

std::string Wrapper::take(std::string_view text, std::size_t columns) {
  columns_ = columns;
  while (!text.empty()) {
    const base::Decoded next = base::decode_utf8(text);
    const std::string_view character = text.substr(0, next.length);
    text.remove_prefix(next.length);
    if (character == "\n") {
      put_line_break();
      continue;
    }
    if (line_.size() < kFence.size()) line_ += character;
    if (character == " ") {
      if (!word_.empty()) put_word();
      blanks_ += ' ';
      parted_ = false;
      continue;
    }
    const std::size_t cells = cells_of(next.code_point);
    // Ideographs may be parted anywhere.
    if (cells == 2 && !word_.empty()) put_word();
    word_ += character;
    word_cells_ += cells;
    const bool too_long = columns == 0 || word_cells_ >= columns;
    if (cells == 2 || too_long) put_word();
    parted_ = cells != 2 && (parted_ || too_long);
  }
  return std::exchange(out_, {});
}

std::string Wrapper::flush() {
  put_word();
  return std::exchange(out_, {});
}

void Wrapper::restart() {
  *this = {};
}

}  // namespace lemma::cli::chat
