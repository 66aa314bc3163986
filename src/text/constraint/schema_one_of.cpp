// SPDX-License-Identifier: Apache-2.0
// oneOf means that exactly one member holds. It is read as anyOf where no text that one member
// makes can satisfy another: by type, by listed values, or by a member of an object. Where that
// cannot be seen, oneOf is refused.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "text/constraint/schema_compiler.hpp"

namespace lemma::text::constraint {
namespace {

constexpr std::size_t kMostMembers = 200;

bool requires_name(const std::vector<const JsonValue*>& plain, std::string_view name) {
  return std::any_of(plain.begin(), plain.end(), [&](const JsonValue* schema) {
    const JsonValue* names = schema->find("required");
    return names && std::any_of(names->items.begin(), names->items.end(),
                                [&](const JsonValue& item) { return item.text == name; });
  });
}

std::set<std::string> required_names(const std::vector<const JsonValue*>& plain) {
  std::set<std::string> names;
  for (const JsonValue* schema : plain) {
    if (const JsonValue* list = schema->find("required"))
      for (const JsonValue& item : list->items) names.insert(item.text);
  }
  return names;
}

}  // namespace

void SchemaCompiler::require_apart(const JsonValue& one_of) {
  if (!checked_.insert(&one_of).second) return;
  if (one_of.items.size() > kMostMembers)
    refuse(one_of, fmt::format("oneOf with more than {} members; use anyOf", kMostMembers));
  for (const JsonValue& a : one_of.items) {
    for (const JsonValue& b : one_of.items) {
      if (&a == &b || never_valid(a, b, 0)) continue;
      refuse(one_of, fmt::format("a text of member {} may satisfy member {} as well, so that oneOf "
                                 "cannot be read as anyOf; use anyOf if that is meant",
                                 a.index, b.index));
    }
  }
}

/// True if no text that is made for `made` satisfies `judge`.
bool SchemaCompiler::never_valid(const JsonValue& made, const JsonValue& judge, int depth) {
  const Flat a = flatten({{&made, false}});
  const Flat b = flatten({{&judge, false}});
  if (a.never || b.never) return true;
  // What a choice adds may widen the types that are only implied.
  Types types_a = a.choices.empty() ? types_of(a.plain) : kAllTypes;
  for (const JsonValue* schema : a.plain) types_a &= declared_types(*schema);
  const auto values_a = values_of(a.plain);
  const auto values_b = values_of(b.plain);
  if (values_a) {
    types_a = 0;
    for (const JsonValue* value : *values_a) types_a |= type_of(*value);
  }
  Types types_b = kAllTypes;
  for (const JsonValue* schema : b.plain) types_b &= declared_types(*schema);
  // Numbers that happen to be whole are integers.
  if ((types_a & kNumberType) != 0) types_a |= kIntegerType;
  if ((types_b & kNumberType) != 0) types_b |= kIntegerType;
  const Types common = types_a & types_b;
  if (common == 0) return true;
  if (values_a && values_b) {
    std::set<std::string> texts;
    for (const JsonValue* value : *values_a) texts.insert(compact_json(*value));
    return std::none_of(values_b->begin(), values_b->end(), [&](const JsonValue* value) {
      return texts.contains(compact_json(*value));
    });
  }
  return common == kObjectType && depth < 4 && never_valid_object(a, b.plain, depth);
}

bool SchemaCompiler::never_valid_object(const Flat& flat, const Plain& judge, int depth) {
  const Plain& made = flat.plain;
  const auto listed = [&](const Plain& plain, const std::string& name) {
    const JsonValue* found = nullptr;
    for (const JsonValue* schema : plain) {
      if (const JsonValue* own = property(*schema, name)) found = own;
    }
    return found;
  };
  const auto says = [](const Plain& plain, std::string_view keyword) {
    return std::any_of(plain.begin(), plain.end(),
                       [&](const JsonValue* schema) { return schema->find(keyword); });
  };
  const bool only_listed = flat.choices.empty() && says(made, "properties") &&
                           !says(made, "additionalProperties") && !says(made, "patternProperties");
  const bool closed = std::any_of(made.begin(), made.end(), [](const JsonValue* schema) {
    const JsonValue* others = schema->find("additionalProperties");
    return others && others->is_boolean() && !others->flag && !schema->find("patternProperties");
  });
  for (const std::string& name : required_names(judge)) {
    const bool can_be_made =
        listed(made, name) || requires_name(made, name) || !(only_listed || closed);
    if (!can_be_made) return true;
  }
  for (const std::string& name : required_names(made)) {
    const JsonValue* own = listed(made, name);
    const JsonValue* other = listed(judge, name);
    if (own && other && never_valid(*own, *other, depth + 1)) return true;
    const bool shut = std::any_of(judge.begin(), judge.end(), [&](const JsonValue* schema) {
      const JsonValue* others = schema->find("additionalProperties");
      return others && others->is_boolean() && !others->flag && !property(*schema, name) &&
             !schema->find("patternProperties");
    });
    if (shut) return true;
  }
  return false;
}

}  // namespace lemma::text::constraint
