// SPDX-License-Identifier: Apache-2.0
// Regex: finds all matches of an expression, leftmost first and preferred first, as a backtracking
// engine would, in time linear in the text and with constant stack, whatever the expression.
//
// Two passes over the code points do it (A. Frisch and L. Cardelli, "Greedy regular expression
// matching", ICALP 2004). The first walks from the end to the start with a deterministic automaton
// whose state at a position says which instructions of the program could still reach a match from
// there, look-aheads included. The second walks forward and takes, at every fork, the preferred way
// that the first pass found to lead to a match: it never turns back. Both are tables that are
// complete before the first text comes, so a Regex is immutable and thread-safe.
//
//   const Regex digits = Regex::compile(R"(\p{N}{1,3})");
//   digits.find_all("x1234", scratch, matches);    // [1,4) [4,5)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex/program.hpp"

namespace lemma::text::regex {

/// Byte offsets.
struct Match {
  std::uint32_t begin, end;
  bool operator==(const Match&) const = default;
};

/// Buffers that are reused between texts, and a count of the work done.
struct Scratch {
  std::vector<std::uint8_t> classes;
  std::vector<std::uint32_t> offsets;
  std::vector<std::uint16_t> states;
  std::size_t steps = 0;  ///< table look-ups of both passes, since construction
};

class Regex {
 public:
  /// Throws kBadFile for a malformed pattern, and kUnsupported for one outside regular languages or
  /// whose tables would be unreasonably large.
  static Regex compile(std::string_view pattern);

  /// Appends all matches in `text` (less than 4 GiB), ascending, none overlapping. An empty match
  /// right behind another match is left out. Bytes that are not UTF-8 count as U+FFFD.
  void find_all(std::string_view text, Scratch& scratch, std::vector<Match>& out) const;

  const std::string& pattern() const noexcept { return pattern_; }
  std::size_t table_bytes() const noexcept {
    return (backward_.size() + forward_.size()) * sizeof(std::uint16_t);
  }

 private:
  friend class Builder;
  static constexpr std::uint16_t kMatched = 0xffff;
  static constexpr std::uint16_t kFailed = 0xfffe;

  std::uint8_t class_of(char32_t c) const noexcept {
    return page_classes_[static_cast<std::size_t>(pages_[c >> 8]) << 8 | (c & 0xff)];
  }
  /// Fills classes and, unless each is one byte, offsets. True if each is one byte.
  bool classify(std::string_view text, Scratch& scratch) const;
  void walk_backward(Scratch& scratch) const noexcept;

  std::string pattern_;
  std::size_t class_count_ = 0;
  std::size_t state_count_ = 0;
  bool looks_back_ = false;
  std::array<std::uint8_t, 128> ascii_classes_{};
  std::vector<std::uint16_t> pages_;        ///< [0x1100] page of code points >> 8
  std::vector<std::uint8_t> page_classes_;  ///< [pages][256]
  /// State at a position out of the state behind it: [states][classes], or with looks_back_
  /// [states][classes][classes + 1] where the last index is the class of the code point before, or
  /// class_count_ at the start of the text.
  std::vector<std::uint16_t> backward_;
  std::vector<std::uint16_t> end_states_;  ///< [classes + 1] the state at the end, by what precedes
  /// [rows][states] the row after one code point, kMatched or kFailed. Row 0 starts a match.
  std::vector<std::uint16_t> forward_;
};

}  // namespace lemma::text::regex
