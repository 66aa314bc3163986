// SPDX-License-Identifier: Apache-2.0
// What tokenizers ask about characters, and the normalization forms. Text may hold bytes that are
// not UTF-8: they pass through unchanged and count as U+FFFD. Everything is linear in the text,
// runs of combining marks included (which utf8proc's own ordering is not). Pure and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.hpp"

namespace lemma::text {

bool is_white_space(char32_t c) noexcept;
bool is_number(char32_t c) noexcept;           ///< Nd, Nl, No
bool is_punctuation(char32_t c) noexcept;      ///< P*, and all of ASCII's signs and symbols
bool is_other(char32_t c) noexcept;            ///< C*: control, format, private, unassigned
bool is_nonspacing_mark(char32_t c) noexcept;  ///< Mn
bool is_mark(char32_t c) noexcept;             ///< M*
bool is_word(char32_t c) noexcept;             ///< \w as Rust's expressions have it
bool is_cjk_ideograph(char32_t c) noexcept;    ///< as BERT delimits them

/// Appends the lower case of `c`: more than one code point for U+0130.
void append_lower(std::string& out, char32_t c);

/// The first code point of the canonical decomposition of `c`.
char32_t first_of_decomposition(char32_t c);

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };
std::string normalize(std::string_view text, NormalForm form);

/// Calls `visit(code_point, bytes)` for every character.
template <typename Visit>
void for_each_character(std::string_view text, const Visit& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const base::Decoded c = base::decode_utf8(text.substr(at));
    visit(c.code_point, text.substr(at, c.length));
    at += c.length;
  }
}

}  // namespace lemma::text
