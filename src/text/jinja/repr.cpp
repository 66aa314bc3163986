// SPDX-License-Identifier: Apache-2.0
// str() and repr(), as Python spells values. The marks of strings inside lists and dicts survive.
#include <fmt/format.h>
#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "text/jinja/operators.hpp"

namespace lemma::text::jinja {
namespace {

void append_repr(Budget& budget, TextBuilder& out, const Value& value);

/// What Python's str.isprintable() says of a code point: no control, format, surrogate, private or
/// unassigned character, and no separator but the blank.
bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string escaped(char32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\\':
      return "\\\\";
    default:
      break;
  }
  const auto number = static_cast<std::uint32_t>(c);
  if (c < 0x100) return fmt::format("\\x{:02x}", number);
  if (c < 0x10000) return fmt::format("\\u{:04x}", number);
  return fmt::format("\\U{:08x}", number);
}

void append_items(Budget& budget, TextBuilder& out, const std::vector<Value>& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.append(", ");
    first = false;
    append_repr(budget, out, item);
  }
}

template <typename Entries>
void append_entries(Budget& budget, TextBuilder& out, const Entries& entries) {
  out.append("{");
  bool first = true;
  for (const auto& [key, value] : entries) {
    if (!first) out.append(", ");
    first = false;
    if constexpr (std::is_same_v<std::decay_t<decltype(key)>, Value>)
      append_repr(budget, out, key);
    else
      append_quoted(out, Text(key));
    out.append(": ");
    append_repr(budget, out, value);
  }
  out.append("}");
}

/// A namespace may hold itself; Python recurses until it gives up.
class Nesting {
 public:
  Nesting() {
    if (++depth() > 2 * kMaxNesting)
      base::raise(ErrorKind::kTemplate, "maximum recursion depth exceeded");
  }
  ~Nesting() { --depth(); }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  static std::uint32_t& depth() {
    thread_local std::uint32_t value = 0;
    return value;
  }
};

void append_range(TextBuilder& out, const Range& range) {
  out.append(range.step == 1
                 ? fmt::format("range({}, {})", range.start, range.stop)
                 : fmt::format("range({}, {}, {})", range.start, range.stop, range.step));
}

void append_containers(Budget& budget, TextBuilder& out, const Value& value) {
  const Nesting nesting;
  switch (value.kind()) {
    case Kind::kList:
      out.append("[");
      append_items(budget, out, value.items());
      out.append("]");
      return;
    case Kind::kTuple:
      out.append("(");
      append_items(budget, out, value.items());
      out.append(value.items().size() == 1 ? ",)" : ")");
      return;
    case Kind::kView:
      out.append(value.list().type + "([");
      append_items(budget, out, value.items());
      out.append("])");
      return;
    case Kind::kDict:
      append_entries(budget, out, value.dict().entries);
      return;
    case Kind::kNamespace:
      out.append("<Namespace ");
      append_entries(budget, out, value.name_space().attributes);
      out.append(">");
      return;
    case Kind::kRange:
      append_range(out, value.range());
      return;
    case Kind::kFunction:
    case Kind::kLoop:
      out.append(value.function().repr());
      return;
    default:
      // A generator: Python prints an address.
      base::raise(ErrorKind::kTemplate, "an object of type {} is printed, not walked",
                  type_name(value));
  }
}

void append_repr(Budget& budget, TextBuilder& out, const Value& value) {
  budget.charge(1);
  if (out.size() > budget.limits().output) budget.allocate(out.size());
  if (value.is(Kind::kUndefined)) {
    out.append("Undefined");
  } else if (value.is(Kind::kString)) {
    if (value.text().markup) out.append("Markup(");
    append_quoted(out, value.text());
    if (value.text().markup) out.append(")");
  } else {
    append_text(budget, out, value);
  }
}

}  // namespace

void append_quoted(TextBuilder& out, const Text& text) {
  const bool has_single = text.bytes.find('\'') != std::string::npos;
  const bool has_double = text.bytes.find('"') != std::string::npos;
  const char32_t quote = has_single && !has_double ? '"' : '\'';
  Marks marks(text);
  out.append(quote, false);
  for (const CodePoint c : code_points(text.bytes)) {
    const bool from_input = marks.from_input(c.begin);
    if (c.value == quote) {
      out.append("\\", from_input);
      out.append(c.value, from_input);
    } else if (c.value == '\\' || !is_printable(c.value)) {
      out.append(escaped(c.value), from_input);
    } else {
      out.append(c.value, from_input);
    }
  }
  out.append(quote, false);
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const std::size_t e = shortest.find('e');
  int exponent = 0;
  std::from_chars(shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1), end.ptr, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  const std::string sign = std::signbit(value) ? "-" : "";
  std::string digits;
  for (const char c : shortest.substr(0, e))
    if (c != '.' && c != '-') digits += c;
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

void append_text(Budget& budget, TextBuilder& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return;
    case Kind::kNone:
      out.append("None");
      return;
    case Kind::kBool:
      out.append(value.as_bool() ? "True" : "False");
      return;
    case Kind::kInt:
      out.append(fmt::format("{}", value.as_int()));
      return;
    case Kind::kFloat:
      out.append(float_repr(value.as_double()));
      return;
    case Kind::kString:
      out.append(value.text());
      return;
    default:
      append_containers(budget, out, value);
  }
}

Text to_text(Budget& budget, const Value& value) {
  if (value.is(Kind::kString)) return value.text();
  TextBuilder out;
  append_text(budget, out, value);
  budget.allocate(out.size());
  return out.take();
}

Text repr(Budget& budget, const Value& value) {
  TextBuilder out;
  append_repr(budget, out, value);
  budget.allocate(out.size());
  return out.take();
}

Text escape_html(Budget& budget, const Text& text) {
  TextBuilder out;
  Marks marks(text);
  for (std::size_t i = 0; i < text.bytes.size(); ++i) {
    const bool from_input = marks.from_input(i);
    switch (const char c = text.bytes[i]) {
      case '&':
        out.append("&amp;", from_input);
        break;
      case '<':
        out.append("&lt;", from_input);
        break;
      case '>':
        out.append("&gt;", from_input);
        break;
      case '\'':
        out.append("&#39;", from_input);
        break;
      case '"':
        out.append("&#34;", from_input);
        break;
      default:
        out.append(std::string_view(&c, 1), from_input);
    }
  }
  budget.allocate(out.size());
  return out.take(true);
}

}  // namespace lemma::text::jinja
