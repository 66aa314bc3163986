// SPDX-License-Identifier: Apache-2.0
// The table of filters, and the tests.
#include "text/jinja/filters.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "text/jinja/arguments.hpp"
#include "text/jinja/letter_case.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/renderer.hpp"
#include "text/jinja/string_methods.hpp"

namespace lemma::text::jinja {
namespace {

Bound none(Arguments arguments) {
  return {"test", std::move(arguments), {}};
}
Bound one(Arguments arguments) {
  return {"test", std::move(arguments), {"other"}, 1};
}

bool remainder_is(Renderer& renderer, const Value& value, const Value& divisor, int rest) {
  const Value result = arithmetic(renderer.budget(), Arithmetic::kMod, value, divisor);
  return equal(renderer.budget(), result, Value::integer(rest));
}

bool is_odd(Renderer& renderer, const Value& value, Arguments arguments) {
  none(std::move(arguments));
  return remainder_is(renderer, value, Value::integer(2), 1);
}
bool is_even(Renderer& renderer, const Value& value, Arguments arguments) {
  none(std::move(arguments));
  return remainder_is(renderer, value, Value::integer(2), 0);
}
bool is_divisible(Renderer& renderer, const Value& value, Arguments arguments) {
  return remainder_is(renderer, value, one(std::move(arguments))[0], 0);
}

template <bool (*kQuestion)(const Value&)>
bool ask(Renderer&, const Value& value, Arguments arguments) {
  none(std::move(arguments));
  return kQuestion(value);
}

bool is_defined(const Value& value) {
  return !value.is(Kind::kUndefined);
}
bool is_undefined(const Value& value) {
  return value.is(Kind::kUndefined);
}
bool is_none(const Value& value) {
  return value.is(Kind::kNone);
}
bool is_boolean(const Value& value) {
  return value.is(Kind::kBool);
}
bool is_false(const Value& value) {
  return value.is(Kind::kBool) && !value.as_bool();
}
bool is_true(const Value& value) {
  return value.is(Kind::kBool) && value.as_bool();
}
bool is_integer(const Value& value) {
  return value.is(Kind::kInt);
}
bool is_float(const Value& value) {
  return value.is(Kind::kFloat);
}
bool is_string(const Value& value) {
  return value.is(Kind::kString);
}
bool is_mapping(const Value& value) {
  return value.is(Kind::kDict);
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_callable(const Value& value) {
  // An undefined value has a __call__, which raises.
  return value.is(Kind::kFunction) || value.is(Kind::kLoop) || value.is(Kind::kUndefined);
}
bool is_escaped(const Value& value) {
  return value.is(Kind::kString) && value.text().markup;
}
/// Whatever has a length and elements by key; dicts too, and, as Jinja has it, undefined values.
bool is_sequence(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
      return true;
    default:
      return false;
  }
}

template <bool kUpper>
bool is_in_case(Renderer& renderer, const Value& value, Arguments arguments) {
  none(std::move(arguments));
  return is_all_cased(to_text(renderer.budget(), value).bytes, kUpper);
}

template <bool kEqual>
bool is_equal(Renderer& renderer, const Value& value, Arguments arguments) {
  return equal(renderer.budget(), value, one(std::move(arguments))[0]) == kEqual;
}

template <Order kOrder>
bool is_ordered(Renderer& renderer, const Value& value, Arguments arguments) {
  return ordered(renderer.budget(), kOrder, value, one(std::move(arguments))[0]);
}

bool is_in(Renderer& renderer, const Value& value, Arguments arguments) {
  return contains(renderer.budget(), one(std::move(arguments))[0], value);
}

/// Identity: of small constants that is equality; of others whether they share their object.
bool is_same(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound = one(std::move(arguments));
  const Value& other = bound[0];
  if (value.kind() != other.kind()) return false;
  switch (value.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return value.as_bool() == other.as_bool();
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kString:
      // Whether Python keeps two equal ones as one object is its own affair.
      return equal(renderer.budget(), value, other);
    default:
      return value.identity() == other.identity();
  }
}

bool is_filter(Renderer&, const Value& value, Arguments arguments) {
  none(std::move(arguments));
  hash_key(value);  // throws where a name could not be looked up
  return value.is(Kind::kString) && find_filter(value.bytes()) != nullptr;
}
bool is_test(Renderer&, const Value& value, Arguments arguments) {
  none(std::move(arguments));
  hash_key(value);
  return value.is(Kind::kString) && find_test(value.bytes()) != nullptr;
}

const std::unordered_map<std::string_view, Test>& tests() {
  static const std::unordered_map<std::string_view, Test> all = {
      {"odd", is_odd},
      {"even", is_even},
      {"divisibleby", is_divisible},
      {"defined", ask<is_defined>},
      {"undefined", ask<is_undefined>},
      {"none", ask<is_none>},
      {"boolean", ask<is_boolean>},
      {"false", ask<is_false>},
      {"true", ask<is_true>},
      {"integer", ask<is_integer>},
      {"float", ask<is_float>},
      {"string", ask<is_string>},
      {"mapping", ask<is_mapping>},
      {"number", ask<is_number>},
      {"sequence", ask<is_sequence>},
      {"iterable", ask<is_iterable>},
      {"callable", ask<is_callable>},
      {"escaped", ask<is_escaped>},
      {"lower", is_in_case<false>},
      {"upper", is_in_case<true>},
      {"sameas", is_same},
      {"in", is_in},
      {"filter", is_filter},
      {"test", is_test},
      {"==", is_equal<true>},
      {"eq", is_equal<true>},
      {"equalto", is_equal<true>},
      {"!=", is_equal<false>},
      {"ne", is_equal<false>},
      {">", is_ordered<Order::kGreater>},
      {"gt", is_ordered<Order::kGreater>},
      {"greaterthan", is_ordered<Order::kGreater>},
      {">=", is_ordered<Order::kGreaterEqual>},
      {"ge", is_ordered<Order::kGreaterEqual>},
      {"<", is_ordered<Order::kLess>},
      {"lt", is_ordered<Order::kLess>},
      {"lessthan", is_ordered<Order::kLess>},
      {"<=", is_ordered<Order::kLessEqual>},
      {"le", is_ordered<Order::kLessEqual>},
  };
  return all;
}

const std::unordered_map<std::string_view, Filter>& filters() {
  static const std::unordered_map<std::string_view, Filter> all = [] {
    std::unordered_map<std::string_view, Filter> result;
    for (const auto* table :
         {&text_filters(), &value_filters(), &sequence_filters(), &selection_filters()})
      for (const NamedFilter& filter : *table) result.emplace(filter.name, filter.filter);
    return result;
  }();
  return all;
}

}  // namespace

const Filter* find_filter(std::string_view name) {
  const auto found = filters().find(name);
  return found == filters().end() ? nullptr : &found->second;
}

const Test* find_test(std::string_view name) {
  const auto found = tests().find(name);
  return found == tests().end() ? nullptr : &found->second;
}

AttributeGetter::AttributeGetter(Renderer& renderer, const Value& attribute) : renderer_(renderer) {
  if (attribute.is(Kind::kNone)) return;
  if (!attribute.is(Kind::kString)) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.bytes();
  for (bool more = true; more;) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool number = !part.empty() && part.size() < 18 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    parts_.push_back(number ? Value::integer(std::stoll(std::string(part))) : Value::string(part));
    more = dot != std::string_view::npos;
    if (more) rest.remove_prefix(dot + 1);
  }
}

Value AttributeGetter::operator()(const Value& item) const {
  Value value = item;
  for (const Value& part : parts_) value = renderer_.get_item(value, part);
  return value;
}

Value ignore_case(Renderer& renderer, const Value& value) {
  if (!value.is(Kind::kString)) return value;
  renderer.budget().allocate(value.bytes().size());
  return Value::string(to_lower(value.text()));
}

}  // namespace lemma::text::jinja
