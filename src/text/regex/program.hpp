// SPDX-License-Identifier: Apache-2.0
// Program: a syntax tree as a list of instructions, the usual nondeterministic automaton. The
// order of a fork's two ways is the preference of the match. Automaton (automaton.hpp) turns it
// into tables; nothing runs a Program directly.
#pragma once

#include <cstdint>
#include <vector>

#include "text/regex/syntax.hpp"

namespace lemma::text::regex {

enum class Op : std::uint8_t {
  kMatch,     ///< the end
  kChar,      ///< one code point of sets[set], then `next`
  kFork,      ///< `next`, or else `other`
  kLook,      ///< goes to `next` if a match from `other` exists here (or not: negated)
  kPrevious,  ///< goes to `next` if the code point before is in sets[set]; at the start: at_edge
  kEnd,       ///< goes to `next` at the end of the text
};

struct Instruction {
  Op op = Op::kMatch;
  bool negated = false;
  bool at_edge = false;
  std::uint8_t depth = 0;  ///< how many look-aheads it stands in
  std::uint32_t next = 0, other = 0;
  std::uint32_t set = 0;
};

struct Program {
  std::vector<Instruction> code;
  std::vector<CharSet> sets;  ///< without repeats
  std::uint32_t start = 0;
  std::uint8_t deepest = 0;
};

/// Throws kUnsupported if repeats blow the program up beyond a few thousand instructions.
Program compile(const Syntax& syntax);

}  // namespace lemma::text::regex
