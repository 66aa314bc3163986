// SPDX-License-Identifier: Apache-2.0
// What Python's operators and built-in functions make of values: truth, equality, order,
// arithmetic, containment, length, iteration, indexing, str() and repr(). Errors carry the words
// that Python's exceptions have, which templates' users know. An undefined value may be printed,
// tested and compared for equality; every other use raises its message.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/budget.hpp"
#include "text/jinja/value.hpp"

namespace lemma::text::jinja {

enum class Arithmetic : std::uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class Order : std::uint8_t { kLess, kLessEqual, kGreater, kGreaterEqual };

/// Python's name of the type: str, list, NoneType, ...
std::string type_name(const Value& value);
/// How Jinja's messages about attributes and items call the object: "dict object", "None".
std::string describe(const Value& value);
/// Throws the message of an undefined value; does nothing for others.
void require_defined(const Value& value);

bool truthy(const Value& value);
bool equal(Budget& budget, const Value& a, const Value& b);
bool ordered(Budget& budget, Order order, const Value& a, const Value& b);
bool contains(Budget& budget, const Value& container, const Value& item);
Value arithmetic(Budget& budget, Arithmetic op, const Value& a, const Value& b);
Value negate(const Value& value);

/// len(value), or nothing where Python has none.
std::optional<std::int64_t> find_length(const Value& value);
std::int64_t length(const Value& value);

/// Calls that yield the elements one by one; false at the end. Throws where it is not iterable.
std::function<bool(Value&)> iterate(Budget& budget, const Value& value);
bool is_iterable(const Value& value);
std::vector<Value> to_items(Budget& budget, const Value& value);

/// container[key] by the container's own rule; nothing where Python raises TypeError or a
/// LookupError (the caller then tries an attribute).
std::optional<Value> find_item(Budget& budget, const Value& container, const Value& key);
/// Throws unless `value` is an int that may be an index, a count, ...
std::int64_t to_index(const Value& value);

/// str(value) and repr(value).
Text to_text(Budget& budget, const Value& value);
void append_text(Budget& budget, TextBuilder& out, const Value& value);
Text repr(Budget& budget, const Value& value);
/// repr() of a string, as Python chooses its quotes.
void append_quoted(TextBuilder& out, const Text& text);

/// repr() of a float: the shortest digits that read back as the same number.
std::string float_repr(double value);

/// HTML's five special characters as entities.
Text escape_html(Budget& budget, const Text& text);
/// Both as one text; where one is markup the other is escaped.
Text concatenate(Budget& budget, const Text& a, const Text& b);

}  // namespace lemma::text::jinja
