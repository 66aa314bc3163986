// SPDX-License-Identifier: Apache-2.0
// Builds the tables of a Regex: classes of code points that no set tells apart, the backward
// automaton by the subset construction, and the forward table.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/raise.hpp"
#include "text/regex/regex.hpp"

namespace lemma::text::regex {

namespace {

// Published expressions need up to a few hundred states and twenty-odd classes; the bounds keep a
// hostile file from asking for more than some megabytes and a second.
constexpr std::size_t kMostStates = 8192;
constexpr std::size_t kMostClasses = 250;
constexpr std::size_t kMostEntries = std::size_t{1} << 22;
constexpr std::size_t kMostWork = std::size_t{1} << 31;

[[noreturn]] void too_large(std::string_view pattern) {
  base::raise(ErrorKind::kUnsupported, "expression '{}' needs tables that are too large",
              pattern.substr(0, 200));
}

using Bits = std::vector<std::uint64_t>;  // one bit an instruction

bool test(const Bits& bits, std::size_t i) {
  return (bits[i / 64] >> (i % 64) & 1) != 0;
}

}  // namespace

class Builder {
 public:
  Builder(std::string_view pattern, Program program) : program_(std::move(program)) {
    regex_.pattern_ = pattern;
    for (const Instruction& i : program_.code) regex_.looks_back_ |= i.op == Op::kPrevious;
  }

  Regex run() {
    make_classes();
    order_by_depth();
    make_backward();
    make_forward();
    return std::move(regex_);
  }

 private:
  /// Code points with the same membership in every set share a class.
  void make_classes() {
    std::vector<char32_t> bounds = {0, 128};
    for (const CharSet& set : program_.sets) {
      for (const CharRange& r : set.ranges()) {
        bounds.push_back(r.first);
        bounds.push_back(r.last + 1);
      }
    }
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    if (bounds.back() <= kLastCodePoint) bounds.push_back(kLastCodePoint + 1);
    std::map<Bits, std::size_t> numbers;
    std::vector<std::uint8_t> flat(kLastCodePoint + 1);
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      Bits member((program_.sets.size() + 63) / 64);
      for (std::size_t s = 0; s < program_.sets.size(); ++s) {
        if (program_.sets[s].contains(bounds[i])) member[s / 64] |= std::uint64_t{1} << (s % 64);
      }
      const auto [entry, added] = numbers.emplace(member, numbers.size());
      if (numbers.size() > kMostClasses) too_large(regex_.pattern_);
      if (added) members_.push_back(member);
      std::fill(flat.begin() + bounds[i], flat.begin() + bounds[i + 1],
                static_cast<std::uint8_t>(entry->second));
    }
    regex_.class_count_ = numbers.size();
    std::copy_n(flat.begin(), 128, regex_.ascii_classes_.begin());
    share_pages(flat);
  }

  void share_pages(const std::vector<std::uint8_t>& flat) {
    std::map<std::string, std::uint16_t> numbers;
    for (std::size_t first = 0; first < flat.size(); first += 256) {
      const std::string page(flat.begin() + static_cast<std::ptrdiff_t>(first),
                             flat.begin() + static_cast<std::ptrdiff_t>(first + 256));
      const auto [entry, added] = numbers.emplace(page, static_cast<std::uint16_t>(numbers.size()));
      if (added) {
        regex_.page_classes_.insert(regex_.page_classes_.end(), page.begin(), page.end());
      }
      regex_.pages_.push_back(entry->second);
    }
  }

  /// Instructions inside look-aheads come before those that ask for their outcome.
  void order_by_depth() {
    for (int depth = program_.deepest; depth >= 0; --depth) {
      levels_.emplace_back();
      for (std::uint32_t i = 0; i < program_.code.size(); ++i) {
        if (program_.code[i].depth == depth) levels_.back().push_back(i);
      }
    }
  }

  bool class_in_set(std::size_t character_class, std::uint32_t set) const {
    return test(members_[character_class], set);
  }

  /// The instructions from which a match can be reached at a position. `behind` are those of the
  /// next position, or null at the end of the text; `here` and `before` are classes.
  Bits viable(const Bits* behind, std::size_t here, std::size_t before) {
    Bits bits((program_.code.size() + 63) / 64);
    for (const std::vector<std::uint32_t>& level : levels_) {
      for (bool changed = true; changed;) {
        changed = false;
        for (const std::uint32_t i : level) {
          if (test(bits, i) || !holds(program_.code[i], bits, behind, here, before)) continue;
          bits[i / 64] |= std::uint64_t{1} << (i % 64);
          changed = true;
        }
        work_ += level.size();
      }
    }
    if (work_ > kMostWork) too_large(regex_.pattern_);
    return bits;
  }

  bool holds(const Instruction& i, const Bits& bits, const Bits* behind, std::size_t here,
             std::size_t before) const {
    switch (i.op) {
      case Op::kMatch:
        return true;
      case Op::kChar:
        return behind && class_in_set(here, i.set) && test(*behind, i.next);
      case Op::kFork:
        return test(bits, i.next) || test(bits, i.other);
      case Op::kLook:
        return test(bits, i.other) != i.negated && test(bits, i.next);
      case Op::kPrevious:
        return previous_holds(i, before) && test(bits, i.next);
      case Op::kEnd:
        return !behind && test(bits, i.next);
    }
    return false;
  }

  bool previous_holds(const Instruction& i, std::size_t before) const {
    return before == regex_.class_count_ ? i.at_edge : class_in_set(before, i.set);
  }

  /// A state is a viable set with what else decides an instruction at its position: whether it is
  /// the end, and what stands before.
  struct Key {
    Bits viable;
    bool end;
    std::size_t before;
    auto operator<=>(const Key&) const = default;
  };

  std::uint16_t number_of(Key key) {
    const auto [entry, added] = numbers_.emplace(std::move(key), states_.size());
    if (added) {
      if (states_.size() >= kMostStates) too_large(regex_.pattern_);
      states_.push_back(&entry->first);
    }
    return static_cast<std::uint16_t>(entry->second);
  }

  void make_backward() {
    const std::size_t classes = regex_.class_count_;
    // Without look-behind, what stands before plays no part and is always taken for the edge.
    const auto before_key = [&](std::size_t before) {
      return regex_.looks_back_ ? before : classes;
    };
    for (std::size_t before = 0; before <= classes; ++before) {
      const std::size_t key = before_key(before);
      regex_.end_states_.push_back(number_of({viable(nullptr, 0, key), true, key}));
    }
    for (std::size_t s = 0; s < states_.size(); ++s) {
      const Bits behind = states_[s]->viable;
      for (std::size_t here = 0; here < classes; ++here) {
        if (!regex_.looks_back_) {
          push_transition(number_of({viable(&behind, here, classes), false, classes}));
          continue;
        }
        for (std::size_t before = 0; before <= classes; ++before) {
          push_transition(number_of({viable(&behind, here, before), false, before}));
        }
      }
    }
    regex_.state_count_ = states_.size();
  }

  void push_transition(std::uint16_t state) {
    if (regex_.backward_.size() >= kMostEntries) too_large(regex_.pattern_);
    regex_.backward_.push_back(state);
  }

  /// Rows are the places where a walk can stand between two code points: the start, and what
  /// follows each kChar.
  void make_forward() {
    row_of(program_.start);
    std::vector<bool> seen;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      for (const Key* state : states_) {
        seen.assign(program_.code.size(), false);
        if (regex_.forward_.size() >= kMostEntries) too_large(regex_.pattern_);
        regex_.forward_.push_back(step(rows_[row], *state, seen));
      }
      work_ += states_.size() * program_.code.size() / 8;
      if (work_ > kMostWork) too_large(regex_.pattern_);
    }
  }

  std::uint16_t row_of(std::uint32_t instruction) {
    const auto [entry, added] =
        row_numbers_.emplace(instruction, static_cast<std::uint16_t>(rows_.size()));
    if (added) rows_.push_back(instruction);
    return entry->second;
  }

  /// Follows forks by preference to the first way that leads to a match. A loop around nothing is
  /// cut where it comes back to an instruction.
  std::uint16_t step(std::uint32_t from, const Key& state, std::vector<bool>& seen) {
    std::vector<std::uint32_t> stack = {from};
    while (!stack.empty()) {
      const std::uint32_t at = stack.back();
      stack.pop_back();
      if (seen[at] || !test(state.viable, at)) continue;
      seen[at] = true;
      const Instruction& i = program_.code[at];
      switch (i.op) {
        case Op::kMatch:
          return Regex::kMatched;
        case Op::kChar:
          return row_of(i.next);
        case Op::kFork:
          stack.push_back(i.other);
          stack.push_back(i.next);
          break;
        case Op::kLook:
        case Op::kPrevious:
        case Op::kEnd:  // viable, so the condition holds
          stack.push_back(i.next);
          break;
      }
    }
    return Regex::kFailed;
  }

  Program program_;
  Regex regex_;
  std::vector<Bits> members_;                       ///< [classes] one bit a set
  std::vector<std::vector<std::uint32_t>> levels_;  ///< instructions by depth, the deepest first
  std::map<Key, std::size_t> numbers_;
  std::vector<const Key*> states_;  ///< into numbers_, whose nodes stay where they are
  std::map<std::uint32_t, std::uint16_t> row_numbers_;
  std::vector<std::uint32_t> rows_;
  std::size_t work_ = 0;
};

Regex Regex::compile(std::string_view pattern) {
  return Builder(pattern, regex::compile(parse_syntax(pattern))).run();
}

}  // namespace lemma::text::regex
