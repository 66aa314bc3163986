// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/format_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/utf8.hpp"
#include "text/jinja/formatting.hpp"
#include "text/jinja/operators.hpp"

namespace lemma::text::jinja {

int read_number(std::string_view text, std::size_t& at, int limit) {
  int value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > limit)
      base::raise(ErrorKind::kTemplate, "a width or precision of more than {} is not supported",
                  limit);
  }
  return value;
}

Text padded(const FormatSpec& spec, const Text& text, char default_align) {
  const auto size = static_cast<std::int64_t>(count_code_points(text.bytes));
  const std::int64_t missing = spec.width - size;
  if (missing <= 0) return text;
  const char align = spec.align ? spec.align : default_align;
  const std::int64_t left = align == '>' || align == '=' ? missing : align == '^' ? missing / 2 : 0;
  TextBuilder out;
  for (std::int64_t i = 0; i < left; ++i) out.append(spec.fill, false);
  out.append(text);
  for (std::int64_t i = left; i < missing; ++i) out.append(spec.fill, false);
  return out.take(text.markup);
}

namespace {

std::string grouped(std::string digits, char separator, std::size_t every) {
  const std::size_t end =
      std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  for (std::size_t at = end; at > every;) digits.insert(at -= every, 1, separator);
  return digits;
}

/// Sign, prefix and digits put together; '=' pads between prefix and digits.
Text number_text(const FormatSpec& spec, bool negative, std::string prefix, std::string digits) {
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.grouping) {
    const bool by_four =
        spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b';
    digits = grouped(std::move(digits), spec.grouping, by_four ? 4 : 3);
  }
  prefix = sign + prefix;
  if (spec.align == '=') {
    const auto have = static_cast<int>(prefix.size() + digits.size());
    std::string fill;
    for (int i = have; i < spec.width; ++i) base::append_utf8(fill, spec.fill);
    return Text(prefix + fill + digits);
  }
  return padded(spec, Text(prefix + digits), '>');
}

}  // namespace

Text format_integer(const FormatSpec& spec, std::int64_t value) {
  const bool negative = value < 0;
  const auto magnitude =
      negative ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  switch (spec.type) {
    case 'b':
      return number_text(spec, negative, spec.alternate ? "0b" : "",
                         fmt::format("{:b}", magnitude));
    case 'o':
      return number_text(spec, negative, spec.alternate ? "0o" : "",
                         fmt::format("{:o}", magnitude));
    case 'x':
      return number_text(spec, negative, spec.alternate ? "0x" : "",
                         fmt::format("{:x}", magnitude));
    case 'X':
      return number_text(spec, negative, spec.alternate ? "0X" : "",
                         fmt::format("{:X}", magnitude));
    default:
      return number_text(spec, negative, "", fmt::format("{}", magnitude));
  }
}

namespace {

std::string float_digits(const FormatSpec& spec, double magnitude) {
  if (std::isnan(magnitude) || std::isinf(magnitude)) {
    const bool upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
    return std::isnan(magnitude) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  }
  if (spec.type == 0 && spec.precision < 0) return float_repr(magnitude);
  const char type = spec.type == '%' ? 'f' : spec.type == 0 || spec.type == 'n' ? 'g' : spec.type;
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  const char pattern[] = {'%',
                          spec.alternate ? '#' : '.',
                          spec.alternate ? '.' : '*',
                          spec.alternate ? '*' : type,
                          spec.alternate ? type : '\0',
                          '\0'};
  char buffer[2 * kMaxPrecision];
  const int size = std::snprintf(buffer, sizeof buffer, pattern, precision, magnitude);
  std::string digits(buffer, static_cast<std::size_t>(size));
  // Without a type Python keeps a digit behind the point.
  if (spec.type == 0 && digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits;
}

}  // namespace

Text format_float(const FormatSpec& spec, double value) {
  if (spec.type == '%') value *= 100;
  const bool negative = std::signbit(value) && !std::isnan(value);
  std::string digits = float_digits(spec, std::fabs(value));
  if (spec.type == '%') digits += '%';
  return number_text(spec, negative, "", std::move(digits));
}

Text format_string(const FormatSpec& spec, const Text& text) {
  if (spec.precision < 0) return padded(spec, text, '<');
  const std::size_t end = byte_of_code_point(text.bytes, static_cast<std::size_t>(spec.precision));
  return padded(spec, slice(text, 0, end), '<');
}

namespace {

FormatSpec parse_spec(std::string_view text, const Value& value) {
  FormatSpec spec;
  std::size_t at = 0;
  constexpr std::string_view kAligns = "<>^=";
  const std::size_t first = text.empty() ? 0 : code_point_length(text, 0);
  if (first < text.size() && kAligns.find(text[first]) != kAligns.npos) {
    spec.fill = base::decode_utf8(text).code_point;
    spec.align = text[first];
    at = first + 1;
  } else if (!text.empty() && kAligns.find(text[0]) != kAligns.npos) {
    spec.align = text[at++];
  }
  const auto take = [&](char c) {
    return at < text.size() && text[at] == c ? (++at, true) : false;
  };
  for (const char sign : {'+', '-', ' '})
    if (take(sign)) spec.sign = sign;
  spec.alternate = take('#');
  if (take('0') && !spec.align) {
    spec.fill = '0';
    spec.align = '=';
  }
  spec.width = read_number(text, at, kMaxWidth);
  for (const char separator : {',', '_'})
    if (take(separator)) spec.grouping = separator;
  if (take('.')) {
    if (at >= text.size() || text[at] < '0' || text[at] > '9')
      base::raise(ErrorKind::kTemplate, "Format specifier missing precision");
    spec.precision = read_number(text, at, value.is(Kind::kString) ? kMaxWidth : kMaxPrecision);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size())
    base::raise(ErrorKind::kTemplate, "Invalid format specifier '{}' for object of type '{}'", text,
                type_name(value));
  return spec;
}

[[noreturn]] void unknown_code(const FormatSpec& spec, const Value& value) {
  base::raise(ErrorKind::kTemplate, "Unknown format code '{}' for object of type '{}'", spec.type,
              type_name(value));
}

constexpr std::string_view kIntTypes = "bdoxXn", kFloatTypes = "eEfFgG%";

}  // namespace

Text format_value(Budget& budget, const Value& value, std::string_view text) {
  if (text.empty()) return to_text(budget, value);
  const FormatSpec spec = parse_spec(text, value);
  budget.allocate(static_cast<std::size_t>(spec.width) * 4);
  if (value.is(Kind::kString)) {
    if (spec.type && spec.type != 's') unknown_code(spec, value);
    if (spec.align == '=')
      base::raise(ErrorKind::kTemplate, "'=' alignment not allowed in string format specifier");
    return format_string(spec, value.text());
  }
  if (value.is(Kind::kBool) && !spec.type) return format_string(spec, to_text(budget, value));
  if (value.is_number()) {
    const bool as_float =
        value.is(Kind::kFloat) || (spec.type && kFloatTypes.find(spec.type) != kFloatTypes.npos);
    if (as_float) {
      if (spec.type && spec.type != 'n' && kFloatTypes.find(spec.type) == kFloatTypes.npos)
        unknown_code(spec, value);
      return format_float(spec, value.as_double());
    }
    if (spec.type == 'c' || (spec.type && kIntTypes.find(spec.type) == kIntTypes.npos))
      unknown_code(spec, value);
    if (spec.precision >= 0)
      base::raise(ErrorKind::kTemplate, "Precision not allowed in integer format specifier");
    return format_integer(spec, value.as_int());
  }
  base::raise(ErrorKind::kTemplate, "unsupported format string passed to {}.__format__",
              type_name(value));
}

}  // namespace lemma::text::jinja
