// SPDX-License-Identifier: Apache-2.0
// What one schema object says, checked: every keyword is known, of the right type, and either
// honoured or an annotation. Conjunctions of schemas (allOf, $ref beside other keywords) are made
// of these in json_schema.cpp.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/constraint/json_value.hpp"

namespace lemma::text::constraint {

/// The types of JSON values as bits.
using Types = std::uint8_t;
inline constexpr Types kNullType = 1, kBooleanType = 2, kIntegerType = 4, kNumberType = 8,
                       kStringType = 16, kArrayType = 32, kObjectType = 64, kAllTypes = 127;

/// Throws kUsage for a keyword that is not known or not honoured, or whose value is of a wrong
/// type, with its place.
void check_keywords(const JsonValue& schema);

/// What `type` (with `nullable`) allows; all where there is none. A number includes integers.
Types declared_types(const JsonValue& schema);
/// The types that the other keywords speak of; 0 if they speak of none.
Types implied_types(const JsonValue& schema);
/// Of a value; an integral number is an integer as well.
Types type_of(const JsonValue& value);

/// The value of a keyword that is a count, or `otherwise`. At most 10^9 counts.
std::uint32_t count_of(const JsonValue& schema, std::string_view keyword, std::uint32_t otherwise);

[[noreturn]] void refuse(const JsonValue& place, std::string_view what);

}  // namespace lemma::text::constraint
