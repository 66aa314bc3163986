// SPDX-License-Identifier: Apache-2.0
// The methods of str that ask what its characters are.
#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "text/jinja/arguments.hpp"
#include "text/jinja/letter_case.hpp"
#include "text/jinja/methods.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/renderer.hpp"
#include "text/jinja/string_methods.hpp"

namespace lemma::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
bool is_letter(char32_t c) {
  return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}
/// Superscripts, subscripts and enclosed digits: digits to Python, but not decimals.
bool is_digit(char32_t c) {
  if (is_decimal(c)) return true;
  constexpr std::array<std::array<char32_t, 2>, 20> kRanges = {
      {{0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
       {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
       {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
       {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
       {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}}};
  return std::any_of(kRanges.begin(), kRanges.end(),
                     [c](const auto& range) { return c >= range[0] && c <= range[1]; });
}
bool is_numeric(char32_t c) {
  if (category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO) return true;
  // Some ideographs are numbers; which ones is in Unicode's Unihan tables, which are not here.
  if (c >= 0x3400 && is_letter(c))
    base::raise(ErrorKind::kTemplate, "isnumeric() of an ideograph is not supported");
  return false;
}
bool is_alnum(char32_t c) {
  return is_letter(c) || is_digit(c) || is_numeric(c);
}
bool is_ascii(char32_t c) {
  return c < 0x80;
}

template <bool (*kIs)(char32_t), bool kEmpty = false>
Value all(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("str method", std::move(arguments), {});
  renderer.budget().charge(self.bytes().size() / 16);
  if (self.bytes().empty()) return Value::boolean(kEmpty);
  for (const CodePoint c : code_points(self.bytes()))
    if (!kIs(c.value)) return Value::boolean(false);
  return Value::boolean(true);
}

bool space(char32_t c) {
  return is_space(c);
}

template <bool kUpper>
Value all_cased(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("str method", std::move(arguments), {});
  renderer.budget().charge(self.bytes().size() / 16);
  return Value::boolean(is_all_cased(self.bytes(), kUpper));
}

Value is_title(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("istitle", std::move(arguments), {});
  renderer.budget().charge(self.bytes().size() / 16);
  bool any = false, inside = false;
  for (const CodePoint c : code_points(self.bytes())) {
    if (!is_cased(c.value)) {
      inside = false;
      continue;
    }
    if (is_lower_letter(c.value) != inside) return Value::boolean(false);
    any = inside = true;
  }
  return Value::boolean(any);
}

Value is_identifier(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("isidentifier", std::move(arguments), {});
  renderer.budget().charge(self.bytes().size() / 16);
  bool first = true;
  for (const CodePoint c : code_points(self.bytes())) {
    const bool starts =
        c.value == '_' || is_letter(c.value) || category(c.value) == UTF8PROC_CATEGORY_NL;
    const bool continues =
        starts || is_decimal(c.value) || category(c.value) == UTF8PROC_CATEGORY_MN ||
        category(c.value) == UTF8PROC_CATEGORY_MC || category(c.value) == UTF8PROC_CATEGORY_PC;
    if (first ? !starts : !continues) return Value::boolean(false);
    first = false;
  }
  return Value::boolean(!first);
}

struct Question {
  std::string_view name;
  BuiltinFunction function;
};

constexpr std::array kQuestions = {
    Question{"isalnum", all<is_alnum>},       Question{"isalpha", all<is_letter>},
    Question{"isascii", all<is_ascii, true>}, Question{"isdecimal", all<is_decimal>},
    Question{"isdigit", all<is_digit>},       Question{"isidentifier", is_identifier},
    Question{"islower", all_cased<false>},    Question{"isnumeric", all<is_numeric>},
    Question{"isspace", all<space>},          Question{"istitle", is_title},
    Question{"isupper", all_cased<true>},
};

}  // namespace

bool is_all_cased(std::string_view text, bool upper) {
  bool any = false;
  for (const CodePoint c : code_points(text)) {
    if (!is_cased(c.value)) continue;
    if (upper ? !is_upper_letter(c.value) : !is_lower_letter(c.value)) return false;
    any = true;
  }
  return any;
}

BuiltinFunction find_string_question(std::string_view name) {
  for (const Question& question : kQuestions)
    if (question.name == name) return question.function;
  return nullptr;
}

}  // namespace lemma::text::jinja
