// SPDX-License-Identifier: Apache-2.0
// Format specifications, "{:>10.2f}" and "%-5d" alike: what they say, and numbers and texts by
// them.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/jinja/text.hpp"

namespace lemma::text::jinja {

inline constexpr int kMaxWidth = 1 << 20;  // of a field; precision is bounded by kMaxPrecision
inline constexpr int kMaxPrecision = 400;

struct FormatSpec {
  char32_t fill = ' ';
  char align = 0;  ///< '<', '>', '^', '=' or none
  char sign = '-';
  bool alternate = false;
  int width = 0;
  char grouping = 0;  ///< ',' or '_' or none
  int precision = -1;
  char type = 0;
};

/// The decimal number at `at`, which moves behind it. Throws where it is more than `limit`.
int read_number(std::string_view text, std::size_t& at, int limit);

Text padded(const FormatSpec& spec, const Text& text, char default_align);
Text format_integer(const FormatSpec& spec, std::int64_t value);
Text format_float(const FormatSpec& spec, double value);
Text format_string(const FormatSpec& spec, const Text& text);

}  // namespace lemma::text::jinja
