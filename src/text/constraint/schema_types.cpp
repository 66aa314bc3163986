// SPDX-License-Identifier: Apache-2.0
// The rules of JSON's types but objects, and whether a listed value satisfies the other keywords.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "base/utf8.hpp"
#include "text/constraint/number_range.hpp"
#include "text/constraint/schema_compiler.hpp"

namespace lemma::text::constraint {
namespace {

std::size_t code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

NumberBounds number_bounds(const std::vector<const JsonValue*>& plain) {
  NumberBounds bounds;
  for (const JsonValue* schema : plain) {
    if (const JsonValue* value = schema->find("minimum"))
      tighten_least(bounds.least, {decimal_of(value->text), false});
    if (const JsonValue* value = schema->find("exclusiveMinimum"))
      tighten_least(bounds.least, {decimal_of(value->text), true});
    if (const JsonValue* value = schema->find("maximum"))
      tighten_most(bounds.most, {decimal_of(value->text), false});
    if (const JsonValue* value = schema->find("exclusiveMaximum"))
      tighten_most(bounds.most, {decimal_of(value->text), true});
    const JsonValue* format = schema->find("format");
    if (format && format->text == "int32") {
      tighten_least(bounds.least, {decimal_of("-2147483648"), false});
      tighten_most(bounds.most, {decimal_of("2147483647"), false});
    }
  }
  return bounds;
}

/// The steps of all `multipleOf` as one whole number; 0 where there is none.
std::int64_t step_of(const std::vector<const JsonValue*>& plain) {
  std::int64_t step = 0;
  for (const JsonValue* schema : plain) {
    const JsonValue* value = schema->find("multipleOf");
    if (!value) continue;
    const double number = value->number();
    if (!(number >= 1 && number <= double(kMostStep)) || number != std::floor(number))
      refuse(*value, "only whole steps from 1 to " + std::to_string(kMostStep) + " are supported");
    const auto whole = static_cast<std::int64_t>(number);
    step = step == 0 ? whole : std::lcm(step, whole);
    if (step > kMostStep)
      refuse(*value,
             "steps together larger than " + std::to_string(kMostStep) + " are not supported");
  }
  return step;
}

bool is_number_format(std::string_view format) {
  return format == "int32" || format == "int64" || format == "float" || format == "double";
}

}  // namespace

Expression SchemaCompiler::type_body(Types type, const Plain& plain) {
  switch (type) {
    case kNullType:
      return literal("null");
    case kBooleanType:
      return choice({literal("true"), literal("false")});
    case kIntegerType:
      return number_body(plain, true);
    case kNumberType:
      return number_body(plain, false);
    case kStringType:
      return string_body(plain);
    case kArrayType:
      return array_body(plain);
    default:
      return object_body(plain);
  }
}

Expression SchemaCompiler::number_body(const Plain& plain, bool integral) {
  const NumberBounds bounds = number_bounds(plain);
  const std::int64_t step = step_of(plain);
  if (integral || step > 0) return integers(bounds, std::max<std::int64_t>(1, step));
  return numbers(bounds);
}

std::pair<std::uint32_t, std::uint32_t> SchemaCompiler::bounds(const Plain& plain,
                                                               std::string_view least,
                                                               std::string_view most) {
  std::pair<std::uint32_t, std::uint32_t> found = {0, kUnbounded};
  for (const JsonValue* schema : plain) {
    found.first = std::max(found.first, count_of(*schema, least, 0));
    found.second = std::min(found.second, count_of(*schema, most, kUnbounded));
  }
  return found;
}

const CharDfa& SchemaCompiler::dfa_of(const JsonValue& keyword) {
  const bool is_format = keyword.parent->members[keyword.index].name == "format";
  const std::string pattern(is_format ? format_pattern(keyword.text) : keyword.text);
  if (is_format && pattern.empty()) {
    refuse(keyword,
           "the format '" + keyword.text + "' is not supported; known are " + known_formats());
  }
  const auto known = dfas_.find(pattern);
  if (known != dfas_.end()) return known->second;
  try {
    CharDfa made = pattern_dfa(pattern);
    spend(made.next.size() / 16);
    return dfas_.emplace(pattern, std::move(made)).first->second;
  } catch (const Error& error) {
    refuse(keyword, error.what());
  }
}

/// What patterns and formats say, with the length if there are any; nothing if there are none.
std::optional<CharDfa> SchemaCompiler::string_dfa(const Plain& plain, std::uint32_t least,
                                                  std::uint32_t most) {
  std::optional<CharDfa> all;
  const JsonValue* last = nullptr;
  const auto meet = [&](const CharDfa& other) {
    try {
      all = all ? both_of(*all, other) : other;
    } catch (const Error& error) {
      refuse(*last, error.what());
    }
    spend(all->next.size() / 16);
  };
  for (const JsonValue* schema : plain) {
    for (const char* keyword : {"pattern", "format"}) {
      const JsonValue* value = schema->find(keyword);
      if (!value || is_number_format(value->text)) continue;
      last = value;
      meet(dfa_of(*value));
    }
  }
  if (!all || (least == 0 && most == kUnbounded)) return all;
  // Where every length up to the largest would be too much, the longest strings are left out.
  if (most != kUnbounded) {
    const auto affordable =
        static_cast<std::uint32_t>(CharDfa::kMostStates / (all->state_count() + 1));
    most = std::min(most, std::max(least, affordable));
  }
  if (least >= CharDfa::kMostStates || (most != kUnbounded && most >= CharDfa::kMostStates))
    refuse(*last, "the least length beside it is too large");
  meet(length_dfa(least, most));
  return all;
}

Expression SchemaCompiler::string_body(const Plain& plain) {
  const auto [least, most] = bounds(plain, "minLength", "maxLength");
  if (least > most) return nothing();
  if (const std::optional<CharDfa> dfa = string_dfa(plain, least, most))
    return sequence({literal("\""), dfa->in_json(), literal("\"")});
  if (least == 0 && most == kUnbounded) return rule_of(string_);
  return sequence({literal("\""), repeat(rule_of(character_), least, most), literal("\"")});
}

Expression SchemaCompiler::array_body(const Plain& plain) {
  auto [least, most] = bounds(plain, "minItems", "maxItems");
  std::size_t listed = 0;
  for (const JsonValue* schema : plain) {
    if (const JsonValue* prefix = schema->find("prefixItems"))
      listed = std::max(listed, prefix->items.size());
  }
  /// What item `index` must be: its place in prefixItems, or `items`.
  const auto item = [&](std::size_t index) {
    Conjunction all;
    for (const JsonValue* schema : plain) {
      const JsonValue* prefix = schema->find("prefixItems");
      const JsonValue* others = schema->find("items");
      if (prefix && index < prefix->items.size()) {
        all.push_back({&prefix->items[index], false});
      } else if (others) {
        all.push_back({others, false});
      }
    }
    return rule_of(rule_for(all, all.empty() ? nullptr : all.front().schema));
  };
  if (least > most) return nothing();
  GraphBuilder graph;
  std::uint32_t at = graph.node();  // behind `done` items
  const std::uint32_t close = graph.node();
  graph.edge(GraphBuilder::kStart, at, literal("["));
  graph.edge(close, GraphBuilder::kEnd, sequence({rule_of(blanks_), literal("]")}));
  const auto separated = [&](std::size_t index) {
    std::vector<Expression> parts;
    if (index > 0) parts.push_back(literal(","));
    parts.push_back(rule_of(blanks_));
    parts.push_back(item(index));
    return sequence(std::move(parts));
  };
  // The listed items one by one, and one more, which has no comma before it if it is the first.
  const std::size_t single = std::min<std::size_t>(std::max<std::size_t>(listed, 1), most);
  for (std::size_t done = 0; done < single; ++done) {
    if (done >= least) graph.silent(at, close);
    const std::uint32_t next = graph.node();
    graph.edge(at, next, separated(done));
    at = next;
  }
  const auto rest = [single](std::uint32_t count) {
    const auto passed = static_cast<std::uint32_t>(single);
    return count == kUnbounded ? kUnbounded : count - std::min(count, passed);
  };
  graph.edge(at, close,
             repeat(separated(std::max<std::size_t>(single, 1)), rest(least), rest(most)));
  return graph.take();
}

/// Whether a listed value satisfies the keywords beside its list. For arrays and objects only
/// `type` can be checked; other keywords beside such a list are refused.
bool SchemaCompiler::admits(const Plain& plain, const JsonValue& value) {
  const Types type = type_of(value);
  for (const JsonValue* schema : plain) {
    if ((declared_types(*schema) & type) == 0) return false;
    Types speaks = implied_types(*schema);
    if ((speaks & type) != 0 && (value.is_array() || value.is_object()))
      refuse(*schema, "keywords of arrays and objects beside enum or const are not supported");
  }
  if (value.is_string()) {
    const auto [least, most] = bounds(plain, "minLength", "maxLength");
    const std::size_t length = code_points(value.text);
    if (length < least || length > most) return false;
    const std::optional<CharDfa> dfa = string_dfa(plain, 0, kUnbounded);
    return !dfa || dfa->accepts_text(value.text);
  }
  if (value.is_number()) {
    if (!constraint::admits(number_bounds(plain), decimal_of(value.text))) return false;
    const std::int64_t step = step_of(plain);
    return step == 0 || std::fmod(value.number(), double(step)) == 0;
  }
  return true;
}

}  // namespace lemma::text::constraint
