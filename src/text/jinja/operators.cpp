// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/operators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace lemma::text::jinja {

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.text().markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      return value.list().type;
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return value.iterator().type;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kFunction:
      return value.function().type;
    case Kind::kSlice:
      return "slice";
  }
  return "object";
}

std::string describe(const Value& value) {
  if (value.is(Kind::kNone)) return "None";
  return type_name(value) + " object";
}

void require_defined(const Value& value) {
  if (value.is(Kind::kUndefined))
    base::raise(ErrorKind::kTemplate, "{}", value.undefined().message);
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    default: {
      const auto length = find_length(value);
      return !length || *length != 0;
    }
  }
}

std::optional<std::int64_t> find_length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<std::int64_t>(value.code_points());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return static_cast<std::int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<std::int64_t>(value.dict().entries.size());
    case Kind::kRange:
      return value.range().size();
    default:
      return std::nullopt;
  }
}

std::int64_t length(const Value& value) {
  if (const auto length = find_length(value)) return *length;
  base::raise(ErrorKind::kTemplate, "object of type '{}' has no len()", type_name(value));
}

std::int64_t to_index(const Value& value) {
  require_defined(value);
  if (value.is_integral()) return value.as_int();
  base::raise(ErrorKind::kTemplate, "'{}' object cannot be interpreted as an integer",
              type_name(value));
}

namespace {

bool equal_lists(Budget& budget, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!equal(budget, a[i], b[i])) return false;
  return true;
}

bool equal_dicts(Budget& budget, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (!other || !equal(budget, value, *other)) return false;
  }
  return true;
}

/// -1, 0 or 1; a number against a NaN is 2. An int and a float compare by their exact values.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral())
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
  // long double holds every int64 and every double on x86-64; elsewhere it is no worse than double.
  const auto exact = [](const Value& v) -> long double {
    return v.is_integral() ? static_cast<long double>(v.as_int())
                           : static_cast<long double>(v.as_double());
  };
  const long double x = exact(a), y = exact(b);
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

int compare_lists(Budget& budget, const std::vector<Value>& a, const std::vector<Value>& b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (equal(budget, a[i], b[i])) continue;
    return ordered(budget, Order::kLess, a[i], b[i]) ? -1 : 1;
  }
  return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
}

constexpr std::string_view symbol(Order order) {
  switch (order) {
    case Order::kLess:
      return "<";
    case Order::kLessEqual:
      return "<=";
    case Order::kGreater:
      return ">";
    case Order::kGreaterEqual:
      return ">=";
  }
  return "";
}

}  // namespace

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.charge(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      budget.charge(std::min(a.bytes().size(), b.bytes().size()) / 64);
      return a.bytes() == b.bytes();
    case Kind::kList:
    case Kind::kTuple:
      return equal_lists(budget, a.items(), b.items());
    case Kind::kDict:
      return equal_dicts(budget, a.dict(), b.dict());
    case Kind::kRange: {
      const Range &x = a.range(), &y = b.range();
      const std::int64_t size = x.size();
      return size == y.size() &&
             (size == 0 || (x.start == y.start && (size == 1 || x.step == y.step)));
    }
    default:
      return a.identity() == b.identity();
  }
}

bool ordered(Budget& budget, Order order, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  budget.charge(1);
  int result = 0;
  if (a.is_number() && b.is_number()) {
    result = compare_numbers(a, b);
    if (result == 2) return false;
  } else if (a.is(Kind::kString) && b.is(Kind::kString)) {
    // UTF-8 sorts as its code points do.
    budget.charge(std::min(a.bytes().size(), b.bytes().size()) / 64);
    result = a.bytes().compare(b.bytes());
  } else if (a.is_sequence() && a.kind() == b.kind()) {
    result = compare_lists(budget, a.items(), b.items());
  } else {
    base::raise(ErrorKind::kTemplate, "'{}' not supported between instances of '{}' and '{}'",
                symbol(order), type_name(a), type_name(b));
  }
  switch (order) {
    case Order::kLess:
      return result < 0;
    case Order::kLessEqual:
      return result <= 0;
    case Order::kGreater:
      return result > 0;
    case Order::kGreaterEqual:
      return result >= 0;
  }
  return false;
}

bool contains(Budget& budget, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is(Kind::kString))
        base::raise(ErrorKind::kTemplate, "'in <string>' requires string as left operand, not {}",
                    type_name(item));
      budget.charge(container.bytes().size() / 16);
      return find_bytes(container.bytes(), item.bytes()) != std::string_view::npos;
    case Kind::kDict:
      return container.dict().find(item) != nullptr;
    case Kind::kRange: {
      if (!item.is_number()) return false;
      const Range& range = container.range();
      for (std::int64_t i = 0; i < range.size(); ++i)
        if (equal(budget, Value::integer(range.at(i)), item)) return true;
      return false;
    }
    default: {
      if (!is_iterable(container)) {
        base::raise(ErrorKind::kTemplate, "argument of type '{}' is not iterable",
                    type_name(container));
      }
      const auto next = iterate(budget, container);
      Value element;
      while (next(element))
        if (equal(budget, element, item)) return true;
      return false;
    }
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kIterator:
      return true;
    default:
      return false;
  }
}

std::function<bool(Value&)> iterate(Budget& budget, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return [](Value&) { return false; };
    case Kind::kString:
      return [&budget, value, at = std::size_t{0}](Value& out) mutable {
        const Text& text = value.text();
        if (at >= text.bytes.size()) return false;
        budget.charge(1);
        const std::size_t end = at + code_point_length(text.bytes, at);
        out = Value::string(slice(text, at, end));
        at = end;
        return true;
      };
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return [&budget, value, at = std::size_t{0}](Value& out) mutable {
        if (at >= value.items().size()) return false;
        budget.charge(1);
        out = value.items()[at++];
        return true;
      };
    case Kind::kDict:
      return [&budget, value, at = std::size_t{0}](Value& out) mutable {
        if (at >= value.dict().entries.size()) return false;
        budget.charge(1);
        out = value.dict().entries[at++].first;
        return true;
      };
    case Kind::kRange:
      return [&budget, value, at = std::int64_t{0}](Value& out) mutable {
        if (at >= value.range().size()) return false;
        budget.charge(1);
        out = Value::integer(value.range().at(at++));
        return true;
      };
    case Kind::kIterator:
      return [&budget, value](Value& out) {
        budget.charge(1);
        return value.iterator().next(out);
      };
    default:
      base::raise(ErrorKind::kTemplate, "'{}' object is not iterable", type_name(value));
  }
}

std::vector<Value> to_items(Budget& budget, const Value& value) {
  const auto next = iterate(budget, value);
  std::vector<Value> items;
  Value item;
  while (next(item)) items.push_back(std::move(item));
  budget.allocate(items.size() * sizeof(Value));
  return items;
}

namespace {

/// Python's rule for a[start:stop:step] on `size` elements.
struct Bounds {
  std::int64_t start, stop, step;
};

std::optional<std::int64_t> slice_part(const Value& value) {
  if (value.is(Kind::kNone)) return std::nullopt;
  require_defined(value);
  if (!value.is_integral())
    base::raise(ErrorKind::kTemplate,
                "slice indices must be integers or None or have an __index__ method");
  return value.as_int();
}

Bounds bounds(const Slice& slice, std::int64_t size) {
  const std::int64_t step = slice_part(slice.step).value_or(1);
  if (step == 0) base::raise(ErrorKind::kTemplate, "slice step cannot be zero");
  const std::int64_t lower = step < 0 ? -1 : 0, upper = step < 0 ? size - 1 : size;
  const auto place = [&](const Value& part, std::int64_t otherwise) {
    const auto given = slice_part(part);
    if (!given) return otherwise;
    return std::clamp(*given < 0 ? std::max(*given, -size - 1) + size : *given, lower, upper);
  };
  return {place(slice.start, step < 0 ? upper : lower), place(slice.stop, step < 0 ? lower : upper),
          step};
}

Value slice_text(Budget& budget, const Value& value, const Slice& slice_value) {
  const Text& text = value.text();
  const auto [start, stop, step] =
      bounds(slice_value, static_cast<std::int64_t>(value.code_points()));
  budget.allocate(text.bytes.size());
  const bool ascii = value.code_points() == text.bytes.size();
  const auto byte_of = [&](std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    return ascii ? at : byte_of_code_point(text.bytes, at);
  };
  if (step == 1) {
    if (start >= stop) return Value::string(slice(text, 0, 0));
    return Value::string(slice(text, byte_of(start), byte_of(stop)));
  }
  std::vector<std::size_t> places;  // of every code point, and the end
  for (const CodePoint c : code_points(text.bytes)) places.push_back(c.begin);
  places.push_back(text.bytes.size());
  TextBuilder out;
  Range range;
  range.start = start, range.stop = stop, range.step = step;
  for (std::int64_t i = 0; i < range.size(); ++i) {
    const auto at = static_cast<std::size_t>(range.at(i));
    out.append(text, places[at], places[at + 1]);
  }
  return Value::string(out.take(text.markup));
}

Value slice_items(Budget& budget, const Value& value, const Slice& slice) {
  const auto [start, stop, step] = bounds(slice, static_cast<std::int64_t>(value.items().size()));
  Range range;
  range.start = start, range.stop = stop, range.step = step;
  std::vector<Value> items;
  budget.allocate(static_cast<std::size_t>(range.size()) * sizeof(Value));
  for (std::int64_t i = 0; i < range.size(); ++i)
    items.push_back(value.items()[static_cast<std::size_t>(range.at(i))]);
  return value.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value slice_range(const Value& value, const Slice& slice) {
  const Range& range = value.range();
  const auto [start, stop, step] = bounds(slice, range.size());
  auto result = std::make_shared<Range>();
  result->start = range.at(start);
  result->stop = range.at(stop);
  result->step = range.step * step;
  return Value::object(Kind::kRange, std::move(result));
}

}  // namespace

std::optional<Value> find_item(Budget& budget, const Value& container, const Value& key) {
  budget.charge(1);
  if (container.is(Kind::kDict)) {
    if (key.is(Kind::kList) || key.is(Kind::kDict) || key.is(Kind::kSlice)) return std::nullopt;
    const Value* found = container.dict().find(key);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  if (key.is(Kind::kSlice)) {
    const Slice& slice = key.as<Slice>();
    if (container.is(Kind::kString)) return slice_text(budget, container, slice);
    if (container.is_sequence()) return slice_items(budget, container, slice);
    if (container.is(Kind::kRange)) return slice_range(container, slice);
    return std::nullopt;
  }
  if (!key.is_integral()) return std::nullopt;
  const bool indexed =
      container.is(Kind::kString) || container.is_sequence() || container.is(Kind::kRange);
  if (!indexed) return std::nullopt;
  const std::int64_t size = length(container);
  std::int64_t index = key.as_int();
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  if (container.is(Kind::kRange)) return Value::integer(container.range().at(index));
  const auto at = static_cast<std::size_t>(index);
  if (container.is_sequence()) return container.items()[at];
  const Text& text = container.text();
  const bool ascii = container.code_points() == text.bytes.size();
  if (!ascii) budget.charge(at / 16);
  const std::size_t byte = ascii ? at : byte_of_code_point(text.bytes, at);
  return Value::string(slice(text, byte, byte + code_point_length(text.bytes, byte)));
}

}  // namespace lemma::text::jinja
