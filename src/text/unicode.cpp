// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/regex/char_set.hpp"

namespace lemma::text {
namespace {

using regex::category_of;

bool in_categories(char32_t c, int first, int last) noexcept {
  const int category = category_of(c);
  return category >= first && category <= last;
}

int combining_class(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

/// Appends the full decomposition of `c`, without ordering it among its neighbours.
void decompose(char32_t c, bool compatibility, std::vector<utf8proc_int32_t>& out) {
  const auto code_point = static_cast<utf8proc_int32_t>(c);
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0) | UTF8PROC_STABLE);
  utf8proc_int32_t buffer[32];
  int boundary = 0;
  const utf8proc_ssize_t n = utf8proc_decompose_char(code_point, buffer, 32, options, &boundary);
  if (n < 1 || n > 32) {
    out.push_back(code_point);
  } else {
    out.insert(out.end(), buffer, buffer + n);
  }
}

/// Sorts every run of marks by combining class, equal ones as they were.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto class_of = [](utf8proc_int32_t c) {
    return combining_class(static_cast<char32_t>(c));
  };
  for (std::size_t at = 0; at < points.size();) {
    if (class_of(points[at]) == 0) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < points.size() && class_of(points[end]) != 0) ++end;
    if (end - at > 1) {
      std::stable_sort(points.begin() + static_cast<std::ptrdiff_t>(at),
                       points.begin() + static_cast<std::ptrdiff_t>(end),
                       [&](auto a, auto b) { return class_of(a) < class_of(b); });
    }
    at = end;
  }
}

void normalize_valid(std::string_view text, NormalForm form, std::string& out) {
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for_each_character(text,
                     [&](char32_t c, std::string_view) { decompose(c, compatibility, points); });
  order_marks(points);
  utf8proc_ssize_t n = static_cast<utf8proc_ssize_t>(points.size());
  if (compose) {
    n = utf8proc_normalize_utf32(
        points.data(), n, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  }
  for (utf8proc_ssize_t i = 0; i < n; ++i) {
    base::append_utf8(out, static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
  }
}

}  // namespace

bool is_white_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_number(char32_t c) noexcept {
  return in_categories(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}
bool is_punctuation(char32_t c) noexcept {
  if (c < 0x80) {
    return (c >= 0x21 && c <= 0x2f) || (c >= 0x3a && c <= 0x40) || (c >= 0x5b && c <= 0x60) ||
           (c >= 0x7b && c <= 0x7e);
  }
  return in_categories(c, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}
bool is_other(char32_t c) noexcept {
  return category_of(c) == UTF8PROC_CATEGORY_CN ||
         in_categories(c, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO);
}
bool is_nonspacing_mark(char32_t c) noexcept {
  return category_of(c) == UTF8PROC_CATEGORY_MN;
}
bool is_mark(char32_t c) noexcept {
  return in_categories(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}
bool is_word(char32_t c) noexcept {
  // Latin-1's superscript digits and fractions are words to Oniguruma only.
  return c == 0x200c || c == 0x200d ||
         (regex::word_set().contains(c) && category_of(c) != UTF8PROC_CATEGORY_NO);
}

bool is_cjk_ideograph(char32_t c) noexcept {
  // The fifth range begins where Hugging Face's code has it, 0x100 behind its block's start.
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  } else if (c == 0x130) {
    out += "i\xcc\x87";
  } else {
    base::append_utf8(out,
                      static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

char32_t first_of_decomposition(char32_t c) {
  std::vector<utf8proc_int32_t> points;
  decompose(c, false, points);
  return static_cast<char32_t>(points[0]);
}

std::string normalize(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    // ASCII in front of ASCII normalizes to itself; the character before a mark may not.
    std::size_t ascii = 0;
    while (ascii < text.size() && static_cast<unsigned char>(text[ascii]) < 0x80) ++ascii;
    if (ascii == text.size()) {
      out += text;
      break;
    }
    if (ascii > 1) {
      out += text.substr(0, ascii - 1);
      text.remove_prefix(ascii - 1);
    }
    // Up to two ASCII characters in a row, where the next such stretch begins.
    std::size_t end = 1;
    while (end < text.size() && !(static_cast<unsigned char>(text[end - 1]) < 0x80 &&
                                  static_cast<unsigned char>(text[end]) < 0x80)) {
      ++end;
    }
    const std::size_t valid = base::valid_utf8_prefix(text.substr(0, end));
    if (valid > 0) {
      normalize_valid(text.substr(0, valid), form, out);
      text.remove_prefix(valid);
    } else {
      const std::size_t length = base::decode_utf8(text).length;
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace lemma::text
