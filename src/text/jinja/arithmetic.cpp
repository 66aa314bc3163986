// SPDX-License-Identifier: Apache-2.0
// The arithmetic operators. Python's ints have no bound; here one beyond 64 bits is an error.
#include <cmath>

#include "text/jinja/formatting.hpp"
#include "text/jinja/operators.hpp"

namespace lemma::text::jinja {
namespace {

constexpr std::string_view symbol(Arithmetic op) {
  switch (op) {
    case Arithmetic::kAdd:
      return "+";
    case Arithmetic::kSub:
      return "-";
    case Arithmetic::kMul:
      return "*";
    case Arithmetic::kDiv:
      return "/";
    case Arithmetic::kFloorDiv:
      return "//";
    case Arithmetic::kMod:
      return "%";
    case Arithmetic::kPow:
      return "** or pow()";
  }
  return "";
}

[[noreturn]] void too_large() {
  base::raise(ErrorKind::kTemplate, "an integer outside 64 bits is not supported");
}

[[noreturn]] void unsupported(Arithmetic op, const Value& a, const Value& b) {
  base::raise(ErrorKind::kTemplate, "unsupported operand type(s) for {}: '{}' and '{}'", symbol(op),
              type_name(a), type_name(b));
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  if (b == 0) base::raise(ErrorKind::kTemplate, "integer division or modulo by zero");
  if (b == -1) {
    std::int64_t result = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) too_large();
    return result;
  }
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  if (b == 0) base::raise(ErrorKind::kTemplate, "integer modulo by zero");
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_mod(double a, double b) {
  if (b == 0) base::raise(ErrorKind::kTemplate, "float modulo");
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double float_floor_div(double a, double b) {
  if (b == 0) base::raise(ErrorKind::kTemplate, "float floor division by zero");
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value int_pow(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) base::raise(ErrorKind::kTemplate, "0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  for (bool more = true; more;) {
    if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) too_large();
    exponent >>= 1;
    more = exponent > 0;
    if (more && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return Value::integer(result);
}

Value int_arithmetic(Arithmetic op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Arithmetic::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Arithmetic::kSub:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Arithmetic::kMul:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Arithmetic::kDiv:
      if (b == 0) base::raise(ErrorKind::kTemplate, "division by zero");
      return Value::real(
          static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Arithmetic::kFloorDiv:
      return Value::integer(floor_div(a, b));
    case Arithmetic::kMod:
      return Value::integer(floor_mod(a, b));
    case Arithmetic::kPow:
      return int_pow(a, b);
  }
  if (overflow) too_large();
  return Value::integer(result);
}

Value float_pow(double a, double b) {
  if (a == 0 && b < 0)
    base::raise(ErrorKind::kTemplate, "0.0 cannot be raised to a negative power");
  if (a < 0 && b != std::floor(b) && std::isfinite(b))
    base::raise(ErrorKind::kTemplate, "complex numbers are not supported");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    base::raise(ErrorKind::kTemplate, "(34, 'Numerical result out of range')");
  return Value::real(result);
}

Value float_arithmetic(Arithmetic op, double a, double b) {
  switch (op) {
    case Arithmetic::kAdd:
      return Value::real(a + b);
    case Arithmetic::kSub:
      return Value::real(a - b);
    case Arithmetic::kMul:
      return Value::real(a * b);
    case Arithmetic::kDiv:
      if (b == 0) base::raise(ErrorKind::kTemplate, "float division by zero");
      return Value::real(a / b);
    case Arithmetic::kFloorDiv:
      return Value::real(float_floor_div(a, b));
    case Arithmetic::kMod:
      return Value::real(float_mod(a, b));
    case Arithmetic::kPow:
      return float_pow(a, b);
  }
  return {};
}

Value repeat(Budget& budget, const Value& value, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  const bool is_text = value.is(Kind::kString);
  const std::size_t size = is_text ? value.bytes().size() : value.items().size() * sizeof(Value);
  if (size != 0 && times > budget.limits().output / size) budget.allocate(SIZE_MAX);
  budget.allocate(size * times);
  if (is_text) {
    TextBuilder out;
    if (size != 0)
      for (std::size_t i = 0; i < times; ++i) out.append(value.text());
    return Value::string(out.take(value.text().markup));
  }
  std::vector<Value> items;
  if (size != 0)
    for (std::size_t i = 0; i < times; ++i)
      items.insert(items.end(), value.items().begin(), value.items().end());
  return value.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

bool repeats(const Value& value) {
  return value.is(Kind::kString) || value.is_sequence();
}

Value multiply(Budget& budget, const Value& a, const Value& b) {
  if (repeats(a) && b.is_integral()) return repeat(budget, a, b.as_int());
  if (repeats(b) && a.is_integral()) return repeat(budget, b, a.as_int());
  if (repeats(a) || repeats(b))
    base::raise(ErrorKind::kTemplate, "can't multiply sequence by non-int of type '{}'",
                type_name(repeats(a) ? b : a));
  unsupported(Arithmetic::kMul, a, b);
}

Value add(Budget& budget, const Value& a, const Value& b) {
  if (a.is(Kind::kString) && b.is(Kind::kString))
    return Value::string(concatenate(budget, a.text(), b.text()));
  if (a.is_sequence() && a.kind() == b.kind()) {
    budget.allocate((a.items().size() + b.items().size()) * sizeof(Value));
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  if (a.is(Kind::kString) || a.is_sequence()) {
    const std::string name = a.is(Kind::kString) ? "str" : type_name(a);
    base::raise(ErrorKind::kTemplate, "can only concatenate {} (not \"{}\") to {}", name,
                type_name(b), name);
  }
  unsupported(Arithmetic::kAdd, a, b);
}

/// a | b of dicts is not among Jinja's operators, so only these remain.
Value mixed(Budget& budget, Arithmetic op, const Value& a, const Value& b) {
  switch (op) {
    case Arithmetic::kAdd:
      return add(budget, a, b);
    case Arithmetic::kMul:
      return multiply(budget, a, b);
    case Arithmetic::kMod:
      if (a.is(Kind::kString)) return Value::string(format_percent(budget, a.text(), b));
      break;
    default:
      break;
  }
  unsupported(op, a, b);
}

}  // namespace

Value arithmetic(Budget& budget, Arithmetic op, const Value& a, const Value& b) {
  require_defined(a);
  const bool formats = op == Arithmetic::kMod && a.is(Kind::kString);
  if (!formats) require_defined(b);
  if (a.is_integral() && b.is_integral()) return int_arithmetic(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_arithmetic(op, a.as_double(), b.as_double());
  return mixed(budget, op, a, b);
}

Value negate(const Value& value) {
  require_defined(value);
  if (value.is_integral()) return int_arithmetic(Arithmetic::kSub, 0, value.as_int());
  if (value.is(Kind::kFloat)) return Value::real(-value.as_double());
  base::raise(ErrorKind::kTemplate, "bad operand type for unary -: '{}'", type_name(value));
}

Text concatenate(Budget& budget, const Text& a, const Text& b) {
  budget.allocate(a.bytes.size() + b.bytes.size());
  TextBuilder out;
  out.append(b.markup && !a.markup ? escape_html(budget, a) : a);
  out.append(a.markup && !b.markup ? escape_html(budget, b) : b);
  return out.take(a.markup || b.markup);
}

}  // namespace lemma::text::jinja
