// SPDX-License-Identifier: Apache-2.0
// JSON numbers within bounds, as expressions over their digits. Integers have at most 18 digits;
// other numbers at most 15 before and 16 behind the point, and an exponent of two digits; within
// bounds at most 15 digits in all, which a double tells apart, and no exponent. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/constraint/expression.hpp"

namespace lemma::text::constraint {

/// A bound as its decimal digits.
struct Decimal {
  bool negative = false;
  std::string whole, fraction;  ///< digits; `whole` without leading zeros, empty for 0
  bool is_zero() const noexcept;
};

/// Of a JSON number's text.
Decimal decimal_of(const std::string& number);
bool less(const Decimal& a, const Decimal& b);

struct Bound {
  Decimal value;
  bool exclusive = false;
};

struct NumberBounds {
  std::optional<Bound> least, most;
};

/// The tightest of two bounds of one side.
void tighten_least(std::optional<Bound>& bound, Bound other);
void tighten_most(std::optional<Bound>& bound, Bound other);
bool admits(const NumberBounds& bounds, const Decimal& value);

/// Integers that are multiples of `step` (1 to kMostStep).
Expression integers(const NumberBounds& bounds, std::int64_t step);
Expression numbers(const NumberBounds& bounds);

inline constexpr std::int64_t kMostStep = 2000;

}  // namespace lemma::text::constraint
