// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/methods.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja/arguments.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/renderer.hpp"

namespace lemma::text::jinja {

Builtin::Builtin(std::string own_name, Value own_self, BuiltinFunction own_function)
    : Function(), name(std::move(own_name)), self(std::move(own_self)), function(own_function) {
  depth = depth_over(self.depth());
}

Value Builtin::call(Renderer& renderer, Arguments arguments) {
  return function(renderer, self, std::move(arguments));
}

std::string Builtin::repr() const {
  // Python prints an address, which is never what a template means.
  base::raise(ErrorKind::kTemplate, "the function '{}' is printed, not called", name);
}

Value make_builtin(std::string_view name, Value self, BuiltinFunction function) {
  return Value::object(Kind::kFunction,
                       std::static_pointer_cast<Function>(std::make_shared<Builtin>(
                           std::string(name), std::move(self), function)));
}

namespace {

struct Method {
  std::string_view name;
  BuiltinFunction function;
};

template <std::size_t N>
BuiltinFunction find_in(const std::array<Method, N>& methods, std::string_view name) {
  const auto found = std::find_if(methods.begin(), methods.end(),
                                  [&](const Method& method) { return method.name == name; });
  return found == methods.end() ? nullptr : found->function;
}

Value view(const char* type, std::vector<Value> items) {
  Value result = Value::list(std::move(items));
  result.as<List>().type = type;
  return Value::object(Kind::kView, result.share<List>());
}

std::vector<Value> entries(Renderer& renderer, const Dict& dict) {
  renderer.budget().allocate(dict.entries.size() * 3 * sizeof(Value));
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries) items.push_back(Value::tuple({key, value}));
  return items;
}

Value dict_items(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("items", std::move(arguments), {});
  return view("dict_items", entries(renderer, self.dict()));
}

Value dict_keys(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("keys", std::move(arguments), {});
  return view("dict_keys", to_items(renderer.budget(), self));
}

Value dict_values(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("values", std::move(arguments), {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) items.push_back(value);
  renderer.budget().allocate(items.size() * sizeof(Value));
  return view("dict_values", std::move(items));
}

Value dict_get(Renderer&, const Value& self, Arguments arguments) {
  if (!arguments.keywords.empty())
    base::raise(ErrorKind::kTemplate, "dict.get() takes no keyword arguments");
  const Bound bound("get", std::move(arguments), {"key", "default"}, 1);
  const Value* found = self.dict().find(bound[0]);
  return found ? *found : bound[1];
}

Value copy(Renderer&, const Value& self, Arguments arguments) {
  const Bound bound("copy", std::move(arguments), {});
  return self;  // values do not change
}

Value sequence_index(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("index", std::move(arguments), {"value", "start", "stop"}, 1);
  const auto size = static_cast<std::int64_t>(self.items().size());
  const auto place = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t at = bound.integer(i, otherwise);
    return std::clamp<std::int64_t>(at < 0 ? std::max(at, -size) + size : at, 0, size);
  };
  const std::int64_t stop = place(2, size);
  for (std::int64_t i = place(1, 0); i < stop; ++i)
    if (equal(renderer.budget(), self.items()[static_cast<std::size_t>(i)], bound[0]))
      return Value::integer(i);
  if (self.is(Kind::kTuple)) base::raise(ErrorKind::kTemplate, "tuple.index(x): x not in tuple");
  base::raise(ErrorKind::kTemplate, "{} is not in list", repr(renderer.budget(), bound[0]).bytes);
}

Value sequence_count(Renderer& renderer, const Value& self, Arguments arguments) {
  const Bound bound("count", std::move(arguments), {"value"}, 1);
  std::int64_t count = 0;
  for (const Value& item : self.items()) count += equal(renderer.budget(), item, bound[0]) ? 1 : 0;
  return Value::integer(count);
}

Value is_integer(Renderer&, const Value& self, Arguments arguments) {
  const Bound bound("is_integer", std::move(arguments), {});
  return Value::boolean(std::isfinite(self.as_double()) &&
                        self.as_double() == std::trunc(self.as_double()));
}

Value bit_length(Renderer&, const Value& self, Arguments arguments) {
  const Bound bound("bit_length", std::move(arguments), {});
  auto magnitude = static_cast<std::uint64_t>(self.as_int());
  if (self.as_int() < 0) magnitude = 0 - magnitude;
  std::int64_t bits = 0;
  for (; magnitude != 0; magnitude >>= 1) ++bits;
  return Value::integer(bits);
}

constexpr std::array<Method, 5> kDictMethods = {{{"items", dict_items},
                                                 {"keys", dict_keys},
                                                 {"values", dict_values},
                                                 {"get", dict_get},
                                                 {"copy", copy}}};
constexpr std::array<Method, 3> kListMethods = {
    {{"index", sequence_index}, {"count", sequence_count}, {"copy", copy}}};

/// What would change a dict or a list.
constexpr std::array<std::string_view, 5> kDictUnsafe = {"clear", "pop", "popitem", "setdefault",
                                                         "update"};
constexpr std::array<std::string_view, 8> kListUnsafe = {"append", "clear", "pop",    "reverse",
                                                         "insert", "sort",  "extend", "remove"};

template <typename Names>
bool among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value unsafe(const Value& object, std::string_view name) {
  return Value::undefined(
      fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
}

std::optional<Value> method(const Value& object, std::string_view name, BuiltinFunction function) {
  if (!function) return std::nullopt;
  return make_builtin(name, object, function);
}

std::optional<Value> number_attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::kFloat)) {
    if (name == "is_integer") return method(object, name, is_integer);
    if (name == "real") return object;
    if (name == "imag") return Value::real(0);
  } else {
    if (name == "bit_length") return method(object, name, bit_length);
    if (name == "real" || name == "numerator") return Value::integer(object.as_int());
    if (name == "imag") return Value::integer(0);
    if (name == "denominator") return Value::integer(1);
  }
  constexpr std::array<std::string_view, 7> kOther = {
      "as_integer_ratio", "conjugate", "from_bytes", "to_bytes", "bit_count", "hex", "fromhex"};
  if (among(kOther, name))
    base::raise(ErrorKind::kTemplate, "'{}' of a number is not supported", name);
  return std::nullopt;
}

std::optional<Value> tuple_attribute(const Value& object, std::string_view name) {
  if (object.list().group && name == "grouper") return object.items()[0];
  if (object.list().group && name == "list") return object.items()[1];
  if (name == "index" || name == "count") return method(object, name, find_in(kListMethods, name));
  return std::nullopt;
}

std::optional<Value> range_attribute(const Range& range, std::string_view name) {
  if (name == "start") return Value::integer(range.start);
  if (name == "stop") return Value::integer(range.stop);
  if (name == "step") return Value::integer(range.step);
  if (name == "index" || name == "count")
    base::raise(ErrorKind::kTemplate, "'{}' of a range is not supported", name);
  return std::nullopt;
}

}  // namespace

std::optional<Value> find_attribute(Renderer& renderer, const Value& object,
                                    std::string_view name) {
  // Every Python object has attributes of this form; the sandbox lets none be used.
  if (name.size() > 4 && name.starts_with("__") && name.ends_with("__"))
    return unsafe(object, name);
  switch (object.kind()) {
    case Kind::kString:
      return method(object, name, find_string_method(name));
    case Kind::kDict:
      if (among(kDictUnsafe, name)) return unsafe(object, name);
      if (name == "fromkeys") base::raise(ErrorKind::kTemplate, "'fromkeys' is not supported");
      return method(object, name, find_in(kDictMethods, name));
    case Kind::kList:
      if (among(kListUnsafe, name)) return unsafe(object, name);
      return method(object, name, find_in(kListMethods, name));
    case Kind::kTuple:
      return tuple_attribute(object, name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return number_attribute(object, name);
    case Kind::kRange:
      return range_attribute(object.range(), name);
    case Kind::kNamespace: {
      const Value* found = object.name_space().find(name);
      return found ? std::optional<Value>(*found) : std::nullopt;
    }
    case Kind::kFunction:
      if (auto found = cycler_method(object, name)) return found;
      [[fallthrough]];
    case Kind::kLoop:
      return object.function().attribute(renderer, name);
    default:
      return std::nullopt;
  }
}

}  // namespace lemma::text::jinja
