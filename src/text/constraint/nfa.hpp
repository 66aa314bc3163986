// SPDX-License-Identifier: Apache-2.0
// Nfa: the first form of a grammar's automaton, with silent edges, straight from the expressions.
// One array of states for all rules; what is known of it before it is made deterministic: which
// rules may be empty, which can end at all, and which states lead to an end.
#pragma once

#include <cstdint>
#include <vector>

#include "text/constraint/automaton.hpp"
#include "text/constraint/expression.hpp"

namespace lemma::text::constraint {

struct NfaEdge {
  enum class Kind : std::uint8_t { kSilent, kBytes, kCall };
  Kind kind = Kind::kSilent;
  std::uint8_t first = 0, last = 0;
  std::uint32_t from = 0, to = 0;
  std::uint32_t call = 0;  ///< into Nfa::calls
};

struct NfaCall {
  std::uint32_t rule, least, most;
  friend bool operator==(const NfaCall&, const NfaCall&) = default;
};

struct Nfa {
  struct RuleEnds {
    std::uint32_t start, end;
  };
  std::uint32_t state_count = 0;
  std::vector<NfaEdge> edges;             ///< by ascending `from` once sort() has run
  std::vector<std::uint32_t> first_edge;  ///< [states + 1]
  std::vector<NfaCall> calls;             ///< without repeats
  std::vector<RuleEnds> rules;            ///< those of the grammar, then those of repeats
  std::vector<std::uint32_t> names;       ///< by rule: the grammar's rule that it belongs to
  std::uint32_t root = 0;

  // Found by analyze().
  std::vector<std::uint8_t> nullable;  ///< by rule: may be empty
  std::vector<std::uint8_t> readable;  ///< by rule: has a text that is not empty
  std::vector<std::uint8_t> leads;     ///< by state: the rule's end can be reached

  bool passes(const NfaEdge& edge) const noexcept {
    return edge.kind == NfaEdge::Kind::kSilent ||
           (edge.kind == NfaEdge::Kind::kCall && nullable[calls[edge.call].rule] != 0);
  }
  bool reads(const NfaEdge& edge) const noexcept {
    return edge.kind == NfaEdge::Kind::kBytes ||
           (edge.kind == NfaEdge::Kind::kCall && readable[calls[edge.call].rule] != 0);
  }
};

/// Throws kUsage where the grammar is too large.
Nfa make_nfa(const Grammar& grammar);

}  // namespace lemma::text::constraint
