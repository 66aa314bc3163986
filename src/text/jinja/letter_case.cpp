// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/letter_case.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "text/jinja/special_casing.hpp"

namespace lemma::text::jinja {
namespace {

constexpr char32_t kSigma = 0x3a3, kFinalSigma = 0x3c2, kDottedCapitalI = 0x130;

utf8proc_int32_t number(char32_t c) {
  return static_cast<utf8proc_int32_t>(c);
}
char32_t lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(number(c)));
}

const SpecialCase* special(char32_t c) {
  if (c < 0xdf) return nullptr;
  const auto found = std::lower_bound(kSpecialCases.begin(), kSpecialCases.end(), c,
                                      [](const SpecialCase& a, char32_t b) { return a.from < b; });
  return found != kSpecialCases.end() && found->from == c ? &*found : nullptr;
}

void append_upper(TextBuilder& out, char32_t c, bool from_input) {
  if (const SpecialCase* found = special(c))
    for (const char32_t each : found->upper) out.append(each, from_input);
  else
    out.append(static_cast<char32_t>(utf8proc_toupper(number(c))), from_input);
}

void append_title(TextBuilder& out, char32_t c, bool from_input) {
  if (const SpecialCase* found = special(c))
    for (const char32_t each : found->title) out.append(each, from_input);
  else
    out.append(static_cast<char32_t>(utf8proc_totitle(number(c))), from_input);
}

/// Characters that do not end a word for the rule of the final sigma.
bool is_case_ignorable(char32_t c) {
  switch (utf8proc_category(number(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x2019 || c == 0x2018;
  }
}

/// A sigma is final behind a cased letter and not before one.
bool is_final_sigma(std::string_view bytes, const CodePoint& sigma) {
  bool before = false;
  for (std::size_t at = sigma.begin; at > 0;) {
    at = previous_code_point(bytes, at);
    const char32_t c = (*CodePoints(bytes.substr(at)).begin()).value;
    if (is_case_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  if (!before) return false;
  for (const CodePoint c : code_points(bytes.substr(sigma.end)))
    if (!is_case_ignorable(c.value)) return !is_cased(c.value);
  return true;
}

void append_lower(TextBuilder& out, const Text& text, const CodePoint& c, bool from_input) {
  if (c.value == kDottedCapitalI) {
    out.append(U'i', from_input);
    out.append(char32_t{0x307}, from_input);
  } else if (c.value == kSigma) {
    out.append(is_final_sigma(text.bytes, c) ? kFinalSigma : lower(kSigma), from_input);
  } else {
    out.append(lower(c.value), from_input);
  }
}

template <typename Append>
Text mapped(const Text& text, Append append) {
  TextBuilder out;
  Marks marks(text);
  for (const CodePoint c : code_points(text.bytes)) append(out, c, marks.from_input(c.begin));
  return out.take(text.markup);
}

}  // namespace

bool is_upper_letter(char32_t c) {
  return utf8proc_category(number(c)) == UTF8PROC_CATEGORY_LU;
}
bool is_lower_letter(char32_t c) {
  return utf8proc_category(number(c)) == UTF8PROC_CATEGORY_LL;
}
bool is_cased(char32_t c) {
  return is_upper_letter(c) || is_lower_letter(c) ||
         utf8proc_category(number(c)) == UTF8PROC_CATEGORY_LT;
}

Text to_upper(const Text& text) {
  return mapped(text, [](TextBuilder& out, const CodePoint& c, bool from_input) {
    append_upper(out, c.value, from_input);
  });
}

Text to_lower(const Text& text) {
  return mapped(text, [&](TextBuilder& out, const CodePoint& c, bool from_input) {
    append_lower(out, text, c, from_input);
  });
}

Text to_title(const Text& text) {
  bool inside = false;
  return mapped(text, [&](TextBuilder& out, const CodePoint& c, bool from_input) {
    if (inside)
      append_lower(out, text, c, from_input);
    else
      append_title(out, c.value, from_input);
    inside = is_cased(c.value);
  });
}

Text capitalize(const Text& text) {
  return mapped(text, [&](TextBuilder& out, const CodePoint& c, bool from_input) {
    if (c.begin == 0)
      append_title(out, c.value, from_input);
    else
      append_lower(out, text, c, from_input);
  });
}

Text swap_case(const Text& text) {
  return mapped(text, [&](TextBuilder& out, const CodePoint& c, bool from_input) {
    if (is_upper_letter(c.value))
      append_lower(out, text, c, from_input);
    else if (is_lower_letter(c.value))
      append_upper(out, c.value, from_input);
    else
      out.append(c.value, from_input);
  });
}

Text fold_case(const Text& text) {
  return mapped(text, [](TextBuilder& out, const CodePoint& c, bool from_input) {
    if (c.value < 0x80) {
      out.append(lower(c.value), from_input);
      return;
    }
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const auto size =
        utf8proc_decompose_char(number(c.value), folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < size && i < 8; ++i)
      out.append(static_cast<char32_t>(folded[i]), from_input);
  });
}

}  // namespace lemma::text::jinja
