// SPDX-License-Identifier: Apache-2.0
// Automaton: a grammar as tables over bytes. Each rule is a finite automaton of its own, with edges
// for ranges of bytes and for calls of other rules; StateStore (state_store.hpp) keeps the stacks
// of callers. Immutable after compile(), so any number of threads may share one.
//
// What compile() settles, so that following it needs no care:
//   - a rule is called for its texts that are not empty: where it may be empty, the way around the
//     call is an edge of its own, so that a call never returns at the place where it was made;
//   - every state can still reach the end of its rule: no way is a dead end;
//   - no rule calls itself before it has read a byte (left recursion is refused by name);
//   - a repeat of more than a few times is a call with a range of counts, not a copy per count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/constraint/expression.hpp"

namespace lemma::text::constraint {

struct ByteEdge {
  std::uint8_t first, last;
  std::uint32_t target;
};

/// Reads rule `rule` `least` to `most` times, then goes on at `target`. Once and once: a plain
/// call.
struct CallEdge {
  std::uint32_t rule, target;
  std::uint32_t least, most;
  bool is_loop() const noexcept { return least != 1 || most != 1; }
};

struct AutomatonState {
  std::uint32_t bytes_begin = 0, bytes_end = 0;  ///< into Automaton::byte_edges
  std::uint32_t calls_begin = 0, calls_end = 0;  ///< into Automaton::call_edges
  bool accepts = false;                          ///< the rule may end here
  /// The rule may only end here: the caller's state stands for this one.
  bool only_returns() const noexcept {
    return accepts && bytes_begin == bytes_end && calls_begin == calls_end;
  }
};

struct Automaton {
  // The first states belong to no rule: the text is complete, and the unknown caller of a rule that
  // is looked at by itself. Then one state per rule counts repeats of that rule, then the rules'.
  static constexpr std::uint32_t kFinished = 0, kCaller = 1, kFirstLoop = 2;

  std::vector<AutomatonState> states;
  std::vector<ByteEdge> byte_edges;
  std::vector<CallEdge> call_edges;
  std::vector<std::uint32_t> starts;  ///< by rule
  std::vector<std::uint32_t> ranks;   ///< by rule: a rule that calls another at its start is lower
  std::uint32_t root = 0;
  std::array<std::uint8_t, 256> classes{};  ///< bytes that no edge tells apart share a class
  std::uint32_t class_count = 0;

  bool is_loop(std::uint32_t state) const noexcept {
    return state >= kFirstLoop && state < kFirstLoop + starts.size();
  }
  std::uint32_t loop_of(std::uint32_t rule) const noexcept { return kFirstLoop + rule; }
  std::size_t bytes() const noexcept;

  /// Throws kUsage if the grammar has no text at all, a rule is left-recursive, or its tables would
  /// be larger than kMostStates states.
  static Automaton compile(const Grammar& grammar);
  static constexpr std::size_t kMostStates = std::size_t{1} << 20;
};

}  // namespace lemma::text::constraint
