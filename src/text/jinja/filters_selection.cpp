// SPDX-License-Identifier: Apache-2.0
// map, select, reject and their like: filters that walk a sequence as they are walked themselves,
// with another filter or a test for each element. And the filters that are refused.
#include <algorithm>
#include <memory>
#include <optional>

#include "text/jinja/arguments.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/renderer.hpp"

namespace lemma::text::jinja {
namespace {

std::uint32_t depth_with(const Value& value, const Arguments& arguments) {
  std::uint32_t depth = value.depth();
  for (const Value& argument : arguments.positional) depth = std::max(depth, argument.depth());
  for (const auto& [key, argument] : arguments.keywords) depth = std::max(depth, argument.depth());
  return depth;
}

using Next = std::function<bool(Value&)>;

/// A generator: `start` runs when the first element is asked for, so that one that is never walked
/// raises nothing. Of a value that is false Jinja looks neither at the arguments nor at the kind.
Value generator(const Value& value, const Arguments& arguments, std::function<Next()> start) {
  return Value::iterator("generator", depth_with(value, arguments),
                         [start = std::move(start), next = Next()](Value& out) mutable {
                           if (!next) next = start();
                           return next(out);
                         });
}

bool nothing(Value&) {
  return false;
}

/// The first positional argument, which is then no longer one.
std::optional<Value> take_first(Arguments& arguments) {
  if (arguments.positional.empty()) return std::nullopt;
  Value first = std::move(arguments.positional.front());
  arguments.positional.erase(arguments.positional.begin());
  return first;
}

Next map_attribute(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("map", std::move(arguments), {"attribute", "default"});
  return [next = iterate(renderer.budget(), value), getter = AttributeGetter(renderer, bound[0]),
          otherwise = bound[1]](Value& out) {
    Value item;
    if (!next(item)) return false;
    out = getter(item);
    if (!otherwise.is(Kind::kNone) && out.is(Kind::kUndefined)) out = otherwise;
    return true;
  };
}

Next map_filter(Renderer& renderer, const Value& value, Arguments arguments) {
  const auto name = take_first(arguments);
  if (!name) base::raise(ErrorKind::kTemplate, "map requires a filter argument");
  if (!name->is(Kind::kString))
    base::raise(ErrorKind::kTemplate, "map(): a filter's name is a str");
  return
      [&renderer, next = iterate(renderer.budget(), value), name = *name, arguments](Value& out) {
        Value item;
        if (!next(item)) return false;
        out = renderer.filter(name.bytes(), item, arguments);
        return true;
      };
}

Value map(Renderer& renderer, const Value& value, Arguments arguments) {
  return generator(value, arguments, [&renderer, value, arguments]() -> Next {
    if (!truthy(value)) return nothing;
    const bool by_attribute =
        arguments.positional.empty() &&
        std::any_of(arguments.keywords.begin(), arguments.keywords.end(),
                    [](const auto& keyword) { return keyword.first == "attribute"; });
    return by_attribute ? map_attribute(renderer, value, arguments)
                        : map_filter(renderer, value, arguments);
  });
}

template <bool kKeep, bool kAttribute>
Next chosen(Renderer& renderer, const Value& value, Arguments arguments) {
  const auto attribute = kAttribute ? take_first(arguments) : Value();
  if (!attribute) base::raise(ErrorKind::kTemplate, "Missing parameter for attribute name");
  const auto name = take_first(arguments);
  if (name && !name->is(Kind::kString)) base::raise(ErrorKind::kTemplate, "a test's name is a str");
  return [&renderer, next = iterate(renderer.budget(), value), name, arguments,
          getter = AttributeGetter(renderer, *attribute)](Value& out) {
    while (next(out)) {
      const Value subject = getter(out);
      const bool passes = name ? renderer.test(name->bytes(), subject, arguments) : truthy(subject);
      if (passes == kKeep) return true;
    }
    return false;
  };
}

template <bool kKeep, bool kAttribute>
Value choose(Renderer& renderer, const Value& value, Arguments arguments) {
  return generator(value, arguments, [&renderer, value, arguments]() -> Next {
    if (!truthy(value)) return nothing;
    return chosen<kKeep, kAttribute>(renderer, value, arguments);
  });
}

/// A filter that Jinja has and this engine does not.
template <std::size_t kName>
Value refuse(Renderer&, const Value&, Arguments) {
  constexpr std::string_view kNames[] = {"urlize", "random", "pprint", "wordwrap", "striptags"};
  base::raise(ErrorKind::kTemplate, "the filter '{}' is not supported", kNames[kName]);
}

}  // namespace

const std::vector<NamedFilter>& selection_filters() {
  static const std::vector<NamedFilter> all = {
      {"map", map},
      {"select", choose<true, false>},
      {"reject", choose<false, false>},
      {"selectattr", choose<true, true>},
      {"rejectattr", choose<false, true>},
      {"urlize", refuse<0>},
      {"random", refuse<1>},
      {"pprint", refuse<2>},
      {"wordwrap", refuse<3>},
      {"striptags", refuse<4>},
  };
  return all;
}

}  // namespace lemma::text::jinja
