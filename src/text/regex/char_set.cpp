// SPDX-License-Identifier: Apache-2.0
#include "text/regex/char_set.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "text/regex/script_ranges.hpp"

namespace lemma::text::regex {
namespace {

/// One byte a code point: utf8proc's own look-up costs a call, and sets ask for all of Unicode.
const std::vector<std::uint8_t>& categories() {
  static const std::vector<std::uint8_t> table = [] {
    std::vector<std::uint8_t> result(kLastCodePoint + 1);
    for (char32_t c = 0; c <= kLastCodePoint; ++c) {
      result[c] = static_cast<std::uint8_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
    }
    return result;
  }();
  return table;
}

// In the order of utf8proc_category_t.
constexpr std::array<std::string_view, 30> kCategories = {
    "cn", "lu", "ll", "lt", "lm", "lo", "mn", "mc", "me", "nd", "nl", "no", "pc", "pd", "ps",
    "pe", "pi", "pf", "po", "sm", "sc", "sk", "so", "zs", "zl", "zp", "cc", "cf", "cs", "co"};

/// The set of each category, all found in one pass.
const std::array<CharSet, 30>& category_sets() {
  static const std::array<CharSet, 30> sets = [] {
    std::array<std::vector<CharRange>, 30> ranges;
    const std::vector<std::uint8_t>& table = categories();
    for (char32_t c = 0; c <= kLastCodePoint;) {
      const char32_t first = c;
      while (c <= kLastCodePoint && table[c] == table[first]) ++c;
      ranges[table[first]].push_back({first, c - 1});
    }
    std::array<CharSet, 30> result;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      for (const CharRange& r : ranges[i]) result[i].add(r.first, r.last);
    }
    return result;
  }();
  return sets;
}

/// Pairs of code points that differ in case only, both ways.
const std::vector<std::pair<char32_t, char32_t>>& case_pairs() {
  static const std::vector<std::pair<char32_t, char32_t>> pairs = [] {
    // Groups of three or more: a form whose own upper or lower case leads on to the others.
    std::map<char32_t, std::vector<char32_t>> groups;  // by folded form
    for (char32_t c = 0; c <= kLastCodePoint; ++c) {
      const auto i = static_cast<utf8proc_int32_t>(c);
      const auto folded = static_cast<char32_t>(utf8proc_tolower(utf8proc_toupper(i)));
      if (folded != c) groups[folded].push_back(c);
    }
    std::vector<std::pair<char32_t, char32_t>> result;
    for (auto& [folded, members] : groups) {
      members.push_back(folded);
      for (const char32_t a : members) {
        for (const char32_t b : members) {
          if (a != b) result.emplace_back(a, b);
        }
      }
    }
    return result;
  }();
  return pairs;
}

std::string normalized_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  }
  return out;
}

CharSet category_group(std::string_view prefix) {
  CharSet set;
  for (std::size_t i = 0; i < kCategories.size(); ++i) {
    if (kCategories[i].starts_with(prefix)) set.add(category_sets()[i]);
  }
  return set;
}

CharSet table_set(std::span<const CharRange> ranges) {
  CharSet set;
  for (const CharRange& r : ranges) set.add(r.first, r.last);
  return set;
}

}  // namespace

void CharSet::add(char32_t first, char32_t last) {
  // Ascending input, the common case, needs no sorting.
  if (ranges_.empty() || first > ranges_.back().last + 1) {
    ranges_.push_back({first, last});
    return;
  }
  ranges_.push_back({first, last});
  normalize();
}

void CharSet::add(const CharRange* begin, const CharRange* end) {
  ranges_.insert(ranges_.end(), begin, end);
  normalize();
}

void CharSet::normalize() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const CharRange& a, const CharRange& b) { return a.first < b.first; });
  std::vector<CharRange> merged;
  for (const CharRange& r : ranges_) {
    if (!merged.empty() && r.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, r.last);
    } else {
      merged.push_back(r);
    }
  }
  ranges_ = std::move(merged);
}

CharSet CharSet::complement() const {
  CharSet result;
  char32_t next = 0;
  for (const CharRange& r : ranges_) {
    if (r.first > next) result.ranges_.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLastCodePoint) result.ranges_.push_back({next, kLastCodePoint});
  return result;
}

CharSet CharSet::intersection(const CharSet& other) const {
  CharSet result;
  for (std::size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const CharRange &a = ranges_[i], &b = other.ranges_[j];
    const char32_t first = std::max(a.first, b.first), last = std::min(a.last, b.last);
    if (first <= last) result.ranges_.push_back({first, last});
    if (a.last < b.last) {
      ++i;
    } else {
      ++j;
    }
  }
  return result;
}

CharSet CharSet::any_case() const {
  std::vector<CharRange> more;
  for (const auto& [from, to] : case_pairs()) {
    if (contains(from)) more.push_back({to, to});
  }
  CharSet result = *this;
  result.add(more.data(), more.data() + more.size());
  return result;
}

bool CharSet::contains(char32_t c) const noexcept {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                      [](char32_t x, const CharRange& r) { return x < r.first; });
  return after != ranges_.begin() && c <= std::prev(after)->last;
}

std::uint8_t category_of(char32_t c) noexcept {
  return c <= kLastCodePoint ? categories()[c] : static_cast<std::uint8_t>(0);
}

std::optional<CharSet> property_set(std::string_view name) {
  const std::string wanted = normalized_name(name);
  if (wanted == "any") return CharSet::all();
  if (wanted == "whitespace" || wanted == "space") return white_space_set();
  if (wanted == "word") return word_set();
  if (wanted == "digit") return digit_set();
  if (wanted == "alpha") return property_set("alphabetic");
  if (wanted == "alnum") {
    CharSet set = *property_set("alphabetic");
    set.add(digit_set());
    return set;
  }
  constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
      {"letter", "l"},   {"mark", "m"},   {"number", "n"},           {"punctuation", "p"},
      {"punct", "p"},    {"symbol", "s"}, {"separator", "z"},        {"other", "c"},
      {"upper", "lu"},   {"lower", "ll"}, {"uppercaseletter", "lu"}, {"lowercaseletter", "ll"},
      {"control", "cc"}, {"cntrl", "cc"}, {"decimalnumber", "nd"}};
  for (const auto& [long_name, short_name] : kLongNames) {
    if (wanted == long_name) return category_group(short_name);
  }
  if (!wanted.empty() && wanted.size() <= 2) {
    CharSet set = category_group(wanted);
    if (!set.empty()) return set;
  }
  if (const auto ranges = script_ranges(wanted)) return table_set(*ranges);
  return std::nullopt;
}

const CharSet& white_space_set() {
  static const CharSet set{{0x09, 0x0d},     {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
                           {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
                           {0x205f, 0x205f}, {0x3000, 0x3000}};
  return set;
}

const CharSet& word_set() {
  static const CharSet set = [] {
    CharSet result = *property_set("alphabetic");
    for (const char* category : {"m", "nd", "pc"}) result.add(category_group(category));
    // Of the other numbers, Oniguruma counts those of Latin-1.
    for (const char32_t c : {0xb2, 0xb3, 0xb9, 0xbc, 0xbd, 0xbe}) {
      result.add(c, c);
    }
    return result;
  }();
  return set;
}

const CharSet& digit_set() {
  static const CharSet set = category_group("nd");
  return set;
}

}  // namespace lemma::text::regex
