// SPDX-License-Identifier: Apache-2.0
// GBNF: the grammar language of llama.cpp, read into a Grammar.
//
//   root  ::= "{" ws pair ("," ws pair)* "}"     # a comment
//   pair  ::= [a-z]+ ":" [0-9]{1,3} | [^\n"]* .
//
// Literals and classes know \n \r \t \\ \" \[ \] \- \^ and \xHH \uHHHH \UHHHHHHHH, which name code
// points. A rule ends at the end of its line unless a group is open, or the line ends with '|', or
// the next one begins with it. docs/constraints.md has the whole language.
#pragma once

#include <string_view>

#include "text/constraint/expression.hpp"

namespace lemma::text::constraint {

/// Throws kUsage naming line and column.
Grammar parse_gbnf(std::string_view text);

}  // namespace lemma::text::constraint
