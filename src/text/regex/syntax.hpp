// SPDX-License-Identifier: Apache-2.0
// The syntax of expressions: a pattern becomes a tree. The dialect is that of the tokenizer.json
// files: Oniguruma's Ruby syntax, as far as it describes a regular language. What is missing (back
// references, general look-behind, atomic groups around more than one set) is refused by name.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/regex/char_set.hpp"

namespace lemma::text::regex {

enum class SyntaxKind : std::uint8_t {
  kSet,        ///< one code point of `set`
  kSequence,   ///< the children one after the other; none: the empty text
  kChoice,     ///< the first child that leads to a match
  kRepeat,     ///< the child `least` to `most` times
  kLookAhead,  ///< the child matches here (or does not: negated), consuming nothing
  kPrevious,   ///< the code point before is in `set`; at the start of the text: `at_edge`
  kEnd,        ///< the end of the text
};

enum class Greed : std::uint8_t { kGreedy, kLazy, kPossessive };

inline constexpr std::uint32_t kUnbounded = 0xffffffff;

struct Syntax {
  SyntaxKind kind = SyntaxKind::kSequence;
  CharSet set;
  std::vector<Syntax> children;
  std::uint32_t least = 1, most = 1;
  Greed greed = Greed::kGreedy;
  bool negated = false;
  bool at_edge = false;
};

/// Throws kBadFile for a malformed pattern and kUnsupported for one that needs more than a regular
/// language; the message shows the pattern and the place.
Syntax parse_syntax(std::string_view pattern);

}  // namespace lemma::text::regex
