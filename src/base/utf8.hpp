// SPDX-License-Identifier: Apache-2.0
// UTF-8: decoding, validating, repairing and encoding. Ill-formed bytes are handled as the Unicode
// Standard recommends (chapter 3, "U+FFFD Substitution of Maximal Subparts"): each longest run of
// bytes that begins a well-formed sequence, or else each single byte, becomes one U+FFFD.
// Overlong forms, surrogates and values above U+10FFFF are ill-formed. Pure and thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lemma::base {

inline constexpr char32_t kReplacementCharacter = 0xfffd;

/// One step of decoding. Where the bytes are ill-formed or end too early, `valid` is false,
/// `code_point` is U+FFFD and `length` covers the maximal subpart that it stands for.
struct Decoded {
  char32_t code_point;
  std::size_t length;  ///< bytes consumed, 1 to 4
  bool valid;
  bool truncated;  ///< not valid, but more bytes after the end of the text could make it so
};

/// Decodes the first code point of `text`, which must not be empty.
Decoded decode_utf8(std::string_view text) noexcept;

/// True if all of `text` is well-formed.
bool is_valid_utf8(std::string_view text) noexcept;

/// The length of the longest prefix of `text` that is well-formed.
std::size_t valid_utf8_prefix(std::string_view text) noexcept;

/// The length of `text` without a last sequence that is well-formed so far but not complete: what
/// a stream may pass on now, since no later byte changes how it reads. Ill-formed bytes before
/// that count as final. At most three bytes are held back.
std::size_t settled_utf8_prefix(std::string_view text) noexcept;

/// `text` with every ill-formed subpart replaced by U+FFFD.
std::string repair_utf8(std::string_view text);

/// Appends `code_point`; a surrogate or a value above U+10FFFF is appended as U+FFFD.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace lemma::base
