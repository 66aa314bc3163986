// SPDX-License-Identifier: Apache-2.0
// CharSet: a set of Unicode code points as sorted ranges, and the sets that expressions name:
// general categories, scripts, white space and the like. Categories come from utf8proc; scripts
// from a table that tools/make_script_ranges.py wrote. Plain values; the named sets are computed
// once and shared by all threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lemma::text::regex {

inline constexpr char32_t kLastCodePoint = 0x10ffff;

struct CharRange {
  char32_t first, last;  ///< both belong to it
  bool operator==(const CharRange&) const = default;
};

class CharSet {
 public:
  CharSet() = default;
  CharSet(std::initializer_list<CharRange> ranges) { add(ranges.begin(), ranges.end()); }
  static CharSet all() { return CharSet{{0, kLastCodePoint}}; }

  void add(char32_t first, char32_t last);
  void add(const CharSet& other) {
    add(other.ranges_.data(), other.ranges_.data() + other.ranges_.size());
  }
  CharSet complement() const;
  CharSet intersection(const CharSet& other) const;
  /// With every other-case form of its members (simple case folding).
  CharSet any_case() const;

  bool contains(char32_t c) const noexcept;
  bool empty() const noexcept { return ranges_.empty(); }
  /// Ascending, with a gap between any two.
  const std::vector<CharRange>& ranges() const noexcept { return ranges_; }
  bool operator==(const CharSet&) const = default;

 private:
  void add(const CharRange* begin, const CharRange* end);
  void normalize();

  std::vector<CharRange> ranges_;
};

/// The general category of `c`, a utf8proc_category_t.
std::uint8_t category_of(char32_t c) noexcept;

/// The set that \p{name} means: a category ("L", "Lu"), a script ("Han") or a property
/// ("White_Space", "Alphabetic", "Any"). Case, blanks, hyphens and underscores do not count.
std::optional<CharSet> property_set(std::string_view name);

const CharSet& white_space_set();  ///< \s
const CharSet& word_set();         ///< \w: alphabetic, marks, decimal digits, connectors
const CharSet& digit_set();        ///< \d: decimal digits of every script

}  // namespace lemma::text::regex
