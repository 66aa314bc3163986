// SPDX-License-Identifier: Apache-2.0
// Filters that order, group, cut and join sequences.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_set>

#include "text/jinja/arguments.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/renderer.hpp"

namespace lemma::text::jinja {
namespace {

using Items = std::vector<Value>;

/// What yields once the items that `make` works out when the first one is asked for, as a Python
/// generator does: one that is never walked raises nothing.
Value once(const char* type, std::uint32_t depth, std::function<Items()> make) {
  return Value::iterator(type, depth,
                         [make = std::move(make), items = std::optional<Items>(),
                          at = std::size_t{0}](Value& out) mutable {
                           if (!items) items = make();
                           if (at >= items->size()) return false;
                           out = (*items)[at++];
                           return true;
                         });
}

Value count(Renderer&, const Value& value, Arguments arguments) {
  const Bound bound("length", std::move(arguments), {});
  return Value::integer(length(value));
}

Value first(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("first", std::move(arguments), {});
  Value result;
  if (iterate(renderer.budget(), value)(result)) return result;
  return Value::undefined("No first item, sequence was empty.");
}

Value last(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("last", std::move(arguments), {});
  if (value.is(Kind::kIterator) || !is_iterable(value))
    base::raise(ErrorKind::kTemplate, "'{}' object is not reversible", type_name(value));
  const std::vector<Value> items = to_items(renderer.budget(), value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value list(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("list", std::move(arguments), {});
  return Value::list(to_items(renderer.budget(), value));
}

Value items(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("items", std::move(arguments), {});
  return once("generator", value.depth() + 1, [&renderer, value] {
    Items result;
    if (value.is(Kind::kUndefined)) return result;
    if (!value.is(Kind::kDict))
      base::raise(ErrorKind::kTemplate, "Can only get item pairs from a mapping.");
    renderer.budget().allocate(value.dict().entries.size() * 3 * sizeof(Value));
    for (const auto& [key, item] : value.dict().entries)
      result.push_back(Value::tuple({key, item}));
    return result;
  });
}

Value join(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("join", std::move(arguments), {"d", "attribute"});
  Budget& budget = renderer.budget();
  const Text separator = bound.has(0) ? to_text(budget, bound[0]) : Text();
  const AttributeGetter getter(renderer, bound[1]);
  const auto next = iterate(budget, value);
  TextBuilder out;
  Value item;
  for (bool is_first = true; next(item); is_first = false) {
    if (!is_first) out.append(separator);
    append_text(budget, out, getter(item));
    if (out.size() > budget.limits().output) budget.allocate(out.size());
  }
  budget.allocate(out.size());
  return Value::string(out.take());
}

Value reverse(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("reverse", std::move(arguments), {});
  Budget& budget = renderer.budget();
  if (value.is(Kind::kString)) {
    budget.allocate(value.bytes().size());
    TextBuilder out;
    for (std::size_t end = value.bytes().size(); end > 0;) {
      const std::size_t begin = previous_code_point(value.bytes(), end);
      out.append(value.text(), begin, end);
      end = begin;
    }
    return Value::string(out.take(value.text().markup));
  }
  if (!is_iterable(value)) base::raise(ErrorKind::kTemplate, "argument must be iterable");
  std::vector<Value> all = to_items(budget, value);
  std::reverse(all.begin(), all.end());
  if (value.is(Kind::kIterator)) return Value::list(std::move(all));
  return once(value.is(Kind::kList) ? "list_reverseiterator" : "reversed", value.depth(),
              [all = std::move(all)] { return all; });
}

/// Stable, by keys that are worked out once; of equal elements the first stays first.
std::vector<Value> sorted(Renderer& renderer, std::vector<Value> values, std::vector<Value> keys,
                          bool descending) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  Budget& budget = renderer.budget();
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ordered(budget, Order::kLess, keys[descending ? b : a], keys[descending ? a : b]);
  });
  std::vector<Value> result;
  for (const std::size_t i : order) result.push_back(std::move(values[i]));
  return result;
}

/// The values of one or several attributes, "a.b,c", as a list.
std::vector<AttributeGetter> getters(Renderer& renderer, const Value& attribute) {
  std::vector<AttributeGetter> result;
  if (!attribute.is(Kind::kString)) {
    result.emplace_back(renderer, attribute);
    return result;
  }
  std::string_view rest = attribute.bytes();
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    result.emplace_back(renderer, Value::string(rest.substr(0, comma)));
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  return result;
}

Value sort(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("sort", std::move(arguments), {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> values = to_items(renderer.budget(), value);
  const std::vector<AttributeGetter> parts = getters(renderer, bound[2]);
  std::vector<Value> keys;
  for (const Value& item : values) {
    std::vector<Value> key;
    for (const AttributeGetter& part : parts)
      key.push_back(bound.truth(1) ? part(item) : ignore_case(renderer, part(item)));
    keys.push_back(Value::list(std::move(key)));
  }
  return Value::list(sorted(renderer, std::move(values), std::move(keys), bound.truth(0)));
}

Value dict_sort(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
  require_defined(value);
  if (!value.is(Kind::kDict))
    base::raise(ErrorKind::kTemplate, "'{}' object has no attribute 'items'", type_name(value));
  const std::string by = bound.has(1) ? bound.text(1).bytes : "key";
  if (by != "key" && by != "value")
    base::raise(ErrorKind::kTemplate, "You can only sort by either \"key\" or \"value\"");
  std::vector<Value> values, keys;
  for (const auto& [key, item] : value.dict().entries) {
    values.push_back(Value::tuple({key, item}));
    const Value& chosen = by == "key" ? key : item;
    keys.push_back(bound.truth(0) ? chosen : ignore_case(renderer, chosen));
  }
  renderer.budget().allocate(values.size() * 3 * sizeof(Value));
  return Value::list(sorted(renderer, std::move(values), std::move(keys), bound.truth(2)));
}

Value unique(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("unique", std::move(arguments), {"case_sensitive", "attribute"});
  return once(
      "generator", value.depth(),
      [&renderer, value, cased = bound.truth(0), getter = AttributeGetter(renderer, bound[1])] {
        Items result;
        std::unordered_set<std::string> seen;
        for (Value& item : to_items(renderer.budget(), value)) {
          const Value key = cased ? getter(item) : ignore_case(renderer, getter(item));
          if (seen.insert(hash_key(key)).second) result.push_back(std::move(item));
        }
        return result;
      });
}

template <bool kMax>
Value extreme(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("min", std::move(arguments), {"case_sensitive", "attribute"});
  const AttributeGetter getter(renderer, bound[1]);
  const auto next = iterate(renderer.budget(), value);
  Value best, best_key, item;
  bool any = false;
  while (next(item)) {
    Value key = bound.truth(0) ? getter(item) : ignore_case(renderer, getter(item));
    if (any && !ordered(renderer.budget(), kMax ? Order::kGreater : Order::kLess, key, best_key))
      continue;
    best = item;
    best_key = std::move(key);
    any = true;
  }
  return any ? best : Value::undefined("No aggregated item, sequence was empty.");
}

Value sum(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("sum", std::move(arguments), {"attribute", "start"});
  const AttributeGetter getter(renderer, bound[0]);
  Value result = bound.has(1) ? bound[1] : Value::integer(0);
  if (result.is(Kind::kString))
    base::raise(ErrorKind::kTemplate, "sum() can't sum strings [use ''.join(seq) instead]");
  const auto next = iterate(renderer.budget(), value);
  Value item;
  while (next(item)) result = arithmetic(renderer.budget(), Arithmetic::kAdd, result, getter(item));
  return result;
}

Items batches(Renderer& renderer, const Value& value, std::int64_t size, const Value& fill) {
  Items result, row;
  const auto flush = [&] {
    result.push_back(Value::list(std::move(row)));
    row = {};
  };
  for (Value& item : to_items(renderer.budget(), value)) {
    if (static_cast<std::int64_t>(row.size()) == size) flush();
    row.push_back(std::move(item));
  }
  if (row.empty()) return result;
  while (!fill.is(Kind::kNone) && static_cast<std::int64_t>(row.size()) < size) {
    renderer.budget().allocate(sizeof(Value));
    row.push_back(fill);
  }
  flush();
  return result;
}

Items slices(Renderer& renderer, const Value& value, std::int64_t count, const Value& fill) {
  const Items all = to_items(renderer.budget(), value);
  if (count == 0) base::raise(ErrorKind::kTemplate, "integer division or modulo by zero");
  Items result;
  const auto size = static_cast<std::int64_t>(all.size());
  auto at = all.begin();
  for (std::int64_t i = 0; i < count; ++i) {
    renderer.budget().allocate(sizeof(List));
    const bool longer = i < size % count;
    const auto end = at + static_cast<std::ptrdiff_t>(size / count + (longer ? 1 : 0));
    Items part(at, end);
    if (!fill.is(Kind::kNone) && !longer) part.push_back(fill);
    result.push_back(Value::list(std::move(part)));
    at = end;
  }
  return result;
}

template <Items (*kCut)(Renderer&, const Value&, std::int64_t, const Value&)>
Value cut(Renderer& renderer, const Value& value, Arguments arguments) {
  const bool rows = kCut == batches;
  const Bound bound(rows ? "batch" : "slice", std::move(arguments),
                    {rows ? "linecount" : "slices", "fill_with"}, 1);
  return once("generator", std::max(value.depth(), bound[1].depth()) + 1,
              [&renderer, value, count = bound[0], fill = bound[1]] {
                return kCut(renderer, value, to_index(count), fill);
              });
}

/// "a.b" of an item, with a default for what is not there.
Value get_or(const AttributeGetter& getter, const Value& item, const Bound& bound, std::size_t i) {
  Value value = getter(item);
  return value.is(Kind::kUndefined) && bound.is_set(i) ? bound[i] : value;
}

Value group_by(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("groupby", std::move(arguments), {"attribute", "default", "case_sensitive"}, 1);
  const AttributeGetter getter(renderer, bound[0]);
  Budget& budget = renderer.budget();
  const auto key_of = [&](const Value& item) {
    const Value key = get_or(getter, item, bound, 1);
    return bound.truth(2) ? key : ignore_case(renderer, key);
  };
  std::vector<Value> all = to_items(budget, value), keys;
  for (const Value& item : all) keys.push_back(key_of(item));
  all = sorted(renderer, std::move(all), std::move(keys), false);
  std::vector<Value> groups;
  for (std::size_t i = 0; i < all.size();) {
    const Value key = key_of(all[i]);
    std::vector<Value> members;
    const std::size_t begin = i;
    for (; i < all.size() && equal(budget, key_of(all[i]), key); ++i) members.push_back(all[i]);
    if (i == begin) members.push_back(all[i++]);  // a key that is not equal to itself: NaN
    const Value shown = bound.truth(2) ? key : get_or(getter, members[0], bound, 1);
    Value group = Value::tuple({shown, Value::list(std::move(members))});
    group.as<List>().group = true;
    groups.push_back(std::move(group));
  }
  return Value::list(std::move(groups));
}

}  // namespace

const std::vector<NamedFilter>& sequence_filters() {
  static const std::vector<NamedFilter> all = {
      {"batch", cut<batches>}, {"count", count},
      {"dictsort", dict_sort}, {"first", first},
      {"groupby", group_by},   {"items", items},
      {"join", join},          {"last", last},
      {"length", count},       {"list", list},
      {"max", extreme<true>},  {"min", extreme<false>},
      {"reverse", reverse},    {"slice", cut<slices>},
      {"sort", sort},          {"sum", sum},
      {"unique", unique},
  };
  return all;
}

}  // namespace lemma::text::jinja
