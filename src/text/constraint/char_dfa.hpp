// SPDX-License-Identifier: Apache-2.0
// CharDfa: a regular set of strings as a deterministic automaton over code points, so that
// patterns, formats and length bounds of one JSON string can be met at the same time. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/constraint/expression.hpp"
#include "text/regex/char_set.hpp"

namespace lemma::text::constraint {

struct CharDfa {
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr std::size_t kMostStates = 20000;

  std::vector<regex::CharSet> classes;  ///< disjoint; together all code points
  std::vector<std::uint32_t> next;      ///< [states][classes], kNone where nothing leads on
  std::vector<std::uint8_t> accepts;    ///< by state; state 0 is the start

  std::size_t state_count() const noexcept { return accepts.size(); }
  bool accepts_text(std::string_view utf8) const;
  /// The same strings inside a JSON string, each character in its shortest JSON form.
  Expression in_json() const;
};

/// Strings of `least` to `most` code points. Throws kUsage beyond kMostStates.
CharDfa length_dfa(std::uint32_t least, std::uint32_t most);
/// Strings that are in both. Throws kUsage beyond kMostStates.
CharDfa both_of(const CharDfa& a, const CharDfa& b);

/// The same strings with as few states as a few rounds of telling states apart show; the same
/// automaton where that needs many.
CharDfa reduced(const CharDfa& dfa);

/// One of `chars` inside a JSON string, in its shortest form.
Expression json_chars(const regex::CharSet& chars);

/// The strings in which `pattern`, an ECMA-262 expression with the u flag, has a match. Throws
/// kUsage for a malformed pattern and for what no finite automaton can do (look-around, back
/// references, word borders), naming it.
CharDfa pattern_dfa(std::string_view pattern);

/// The pattern of a format of JSON Schema, or an empty view.
std::string_view format_pattern(std::string_view format);
/// All of them, for messages.
std::string known_formats();

}  // namespace lemma::text::constraint
