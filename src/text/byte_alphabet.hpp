// SPDX-License-Identifier: Apache-2.0
// GPT-2's alphabet, in which byte-level vocabularies spell bytes: those that print in Latin-1 spell
// themselves, the other 68 take the code points from U+0100 on, in order. Pure and thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lemma::text {

/// The code point that spells `byte`.
char32_t spelling_of_byte(unsigned char byte) noexcept;
/// The byte that `c` spells, or nothing.
std::optional<unsigned char> byte_of_letter(char32_t c) noexcept;

/// The bytes that a spelling stands for. A character outside the alphabet stands for itself.
std::string bytes_of_spelling(std::string_view spelling);
/// Every byte of `bytes` in the alphabet.
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace lemma::text
