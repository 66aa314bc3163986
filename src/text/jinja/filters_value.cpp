// SPDX-License-Identifier: Apache-2.0
// Filters on numbers and single values.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "text/jinja/arguments.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/methods.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/renderer.hpp"
#include "text/jinja/string_methods.hpp"

namespace lemma::text::jinja {
namespace {

/// Digits without the underscores that Python allows between them; nothing where one is misplaced.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
      continue;
    }
    const auto digit = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
  }
  return result;
}

[[noreturn]] void too_large() {
  base::raise(ErrorKind::kTemplate, "an integer outside 64 bits is not supported");
}

/// int(text, base), or nothing where Python raises ValueError.
std::optional<std::int64_t> parse_int(const Text& text, std::int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  std::string digits = strip(text, nullptr, Side::kBoth).bytes;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    const std::int64_t named = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      base = named;
      digits.erase(0, digits[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0) {
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of("0_") != digits.npos)
      return std::nullopt;
    base = 10;
  }
  const auto clean = without_underscores(digits);
  if (!clean || clean->empty()) return std::nullopt;
  const std::string signed_digits = (negative ? "-" : "") + *clean;
  std::int64_t value = 0;
  const char* end = signed_digits.data() + signed_digits.size();
  const auto result = std::from_chars(signed_digits.data(), end, value, static_cast<int>(base));
  if ((*clean)[0] == '-' || result.ptr != end) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) too_large();
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

/// float(text), or nothing where Python raises ValueError.
std::optional<double> parse_float(const Text& text) {
  std::string digits = strip(text, nullptr, Side::kBoth).bytes;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  // from_chars also reads "nan(...)", which Python does not.
  if (digits.find('(') != digits.npos) return std::nullopt;
  const auto clean = without_underscores(digits);
  if (!clean) return std::nullopt;
  double value = 0;
  const char* end = clean->data() + clean->size();
  const auto result = std::from_chars(clean->data(), end, value);
  if (result.ptr != end) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    // Too large is infinity, too small is zero: strtod tells which.
    value = std::strtod(clean->c_str(), nullptr);
  } else if (result.ec != std::errc()) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

std::int64_t truncated(double value) {
  if (std::isnan(value)) base::raise(ErrorKind::kTemplate, "cannot convert float NaN to integer");
  if (std::isinf(value))
    base::raise(ErrorKind::kTemplate, "cannot convert float infinity to integer");
  if (!(std::fabs(value) < 0x1p63)) too_large();
  return static_cast<std::int64_t>(value);
}

Value to_int(Renderer&, const Value& value, Arguments arguments) {
  const Bound bound("int", std::move(arguments), {"default", "base"});
  require_defined(value);
  const Value otherwise = bound.has(0) ? bound[0] : Value::integer(0);
  if (value.is_integral()) return Value::integer(value.as_int());
  if (value.is(Kind::kFloat)) {
    if (std::isnan(value.as_double())) return otherwise;
    return Value::integer(truncated(value.as_double()));
  }
  if (!value.is(Kind::kString)) return otherwise;
  if (const auto whole = parse_int(value.text(), bound.integer(1, 10)))
    return Value::integer(*whole);
  const auto real = parse_float(value.text());
  if (!real || !std::isfinite(*real)) return otherwise;
  return Value::integer(truncated(*real));
}

Value to_float(Renderer&, const Value& value, Arguments arguments) {
  const Bound bound("float", std::move(arguments), {"default"});
  require_defined(value);
  const Value otherwise = bound.has(0) ? bound[0] : Value::real(0);
  if (value.is_number()) return Value::real(value.as_double());
  if (!value.is(Kind::kString)) return otherwise;
  const auto real = parse_float(value.text());
  return real ? Value::real(*real) : otherwise;
}

Value absolute(Renderer&, const Value& value, Arguments arguments) {
  const Bound bound("abs", std::move(arguments), {});
  require_defined(value);
  if (value.is(Kind::kFloat)) return Value::real(std::fabs(value.as_double()));
  if (!value.is_integral())
    base::raise(ErrorKind::kTemplate, "bad operand type for abs(): '{}'", type_name(value));
  return value.as_int() < 0 ? negate(value) : Value::integer(value.as_int());
}

/// Half to even, on the exact decimal value.
double round_to(double value, std::int64_t precision) {
  if (!std::isfinite(value)) return value;
  if (precision > 323) return value;
  if (precision >= 0)
    return std::strtod(fmt::format("{:.{}f}", value, static_cast<int>(precision)).c_str(), nullptr);
  if (precision < -308) return 0.0 * value;
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / unit) * unit;
}

Value round_int(std::int64_t value, std::int64_t precision) {
  if (precision >= 0) return Value::integer(value);
  if (precision < -18) return Value::integer(0);
  std::int64_t unit = 1;
  for (std::int64_t i = precision; i < 0; ++i) unit *= 10;
  std::int64_t quotient = value / unit, rest = value % unit;
  if (rest < 0) {
    rest += unit;
    --quotient;
  }
  if (rest > unit - rest || (rest == unit - rest && quotient % 2 != 0)) ++quotient;
  std::int64_t result = 0;
  if (__builtin_mul_overflow(quotient, unit, &result)) too_large();
  return Value::integer(result);
}

Value round_filter(Renderer&, const Value& value, Arguments arguments) {
  const Bound bound("round", std::move(arguments), {"precision", "method"});
  require_defined(value);
  const std::int64_t precision = bound.integer(0);
  const std::string method = bound.has(1) ? bound.text(1).bytes : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    base::raise(ErrorKind::kTemplate, "method must be common, ceil or floor");
  if (!value.is_number())
    base::raise(ErrorKind::kTemplate, "type {} doesn't define __round__ method", type_name(value));
  if (method == "common") {
    if (value.is_integral()) return round_int(value.as_int(), precision);
    return Value::real(round_to(value.as_double(), precision));
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.as_double() * unit;
  if (!std::isfinite(scaled))
    base::raise(ErrorKind::kTemplate, "cannot convert float infinity to integer");
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit + 0.0);
}

Value file_size(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("filesizeformat", std::move(arguments), {"binary"});
  const Value number = to_float(renderer, value, {});
  if (value.is(Kind::kString) && !parse_float(value.text()))
    base::raise(ErrorKind::kTemplate, "could not convert string to float: {}",
                repr(renderer.budget(), value).bytes);
  if (!value.is_number() && !value.is(Kind::kString))
    base::raise(ErrorKind::kTemplate,
                "float() argument must be a string or a real number, not '{}'", type_name(value));
  const double bytes = number.as_double();
  const bool binary = bound.truth(0);
  const double unit = binary ? 1024 : 1000;
  if (bytes == 1) return Value::string("1 Byte");
  if (bytes < unit) return Value::string(fmt::format("{} Bytes", truncated(bytes)));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double scale = unit;
  std::size_t i = 0;
  while (i + 1 < kPrefixes.size() && bytes >= scale * unit) {
    scale *= unit;
    ++i;
  }
  const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
  return Value::string(
      fmt::format("{:.1f} {}{}", unit * bytes / (scale * unit), prefix, binary ? "iB" : "B"));
}

Value default_value(Renderer&, const Value& value, Arguments arguments) {
  const Bound bound("default", std::move(arguments), {"default_value", "boolean"});
  if (value.is(Kind::kUndefined) || (bound.truth(1) && !truthy(value)))
    return bound.has(0) ? bound[0] : Value::string("");
  return value;
}

/// Only what the object itself has, not its items.
Value attribute(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("attr", std::move(arguments), {"name"}, 1);
  require_defined(value);
  const std::string name = bound.text(0).bytes;
  if (auto found = find_attribute(renderer, value, name)) return *std::move(found);
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", describe(value), name));
}

}  // namespace

const std::vector<NamedFilter>& value_filters() {
  static const std::vector<NamedFilter> all = {
      {"abs", absolute},    {"attr", attribute},
      {"d", default_value}, {"default", default_value},
      {"float", to_float},  {"filesizeformat", file_size},
      {"int", to_int},      {"round", round_filter},
  };
  return all;
}

}  // namespace lemma::text::jinja
