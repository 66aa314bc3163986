// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/json_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hex.hpp"
#include "base/raise.hpp"
#include "text/constraint/schema_compiler.hpp"

namespace lemma::text::constraint {
namespace {

/// One character of a JSON string: raw, or an escape; surrogates come in pairs only.
Expression any_character() {
  const regex::CharSet hex = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
  const auto four = [&](Expression first, Expression second) {
    return sequence({std::move(first), std::move(second), one_of(hex), one_of(hex)});
  };
  const regex::CharSet d = {{'D', 'D'}, {'d', 'd'}};
  const regex::CharSet high = {{'8', '9'}, {'A', 'B'}, {'a', 'b'}};
  const regex::CharSet low = {{'C', 'F'}, {'c', 'f'}};
  const regex::CharSet not_d = {{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
  std::vector<Expression> units;
  units.push_back(four(one_of(not_d), one_of(hex)));
  units.push_back(four(one_of(d), one_of({{'0', '7'}})));
  units.push_back(
      sequence({four(one_of(d), one_of(high)), literal("\\u"), four(one_of(d), one_of(low))}));
  std::vector<Expression> escapes;
  escapes.push_back(one_of({{'"', '"'},
                            {'/', '/'},
                            {'\\', '\\'},
                            {'b', 'b'},
                            {'f', 'f'},
                            {'n', 'n'},
                            {'r', 'r'},
                            {'t', 't'}}));
  escapes.push_back(sequence({literal("u"), choice(std::move(units))}));
  return choice({one_of({{0x20, 0x21}, {0x23, 0x5b}, {0x5d, regex::kLastCodePoint}}),
                 sequence({literal("\\"), choice(std::move(escapes))})});
}

/// Nothing, a blank, or a new line with some depth.
Expression some_blanks() {
  return choice({sequence({}), literal(" "),
                 sequence({literal("\n"),
                           choice({repeat(literal(" "), 0, 40), repeat(literal("\t"), 1, 12)})})});
}

/// What a fragment's percent signs and tildes stand for.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      return at < text.size() ? base::hex_value(static_cast<unsigned char>(text[at])) : -1;
    };
    if (text[i] == '%' && digit(i + 1) >= 0 && digit(i + 2) >= 0) {
      out += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
      i += 2;
    } else if (text[i] == '~' && i + 1 < text.size() &&
               (text[i + 1] == '0' || text[i + 1] == '1')) {
      out += text[++i] == '0' ? '~' : '/';
    } else {
      out += text[i];
    }
  }
  return out;
}

const JsonValue* step_into(const JsonValue& value, const std::string& name) {
  if (value.is_object()) return value.find(name);
  if (!value.is_array() || name.empty() || name.size() > 9) return nullptr;
  std::size_t index = 0;
  for (const char c : name) {
    if (c < '0' || c > '9') return nullptr;
    index = 10 * index + static_cast<std::size_t>(c - '0');
  }
  return index < value.items.size() ? &value.items[index] : nullptr;
}

}  // namespace

SchemaCompiler::SchemaCompiler(const JsonValue& root, SchemaOptions options)
    : root_(root), options_(options) {
  character_ = add_rule("character", any_character());
  string_ = add_rule("string", sequence({literal("\""), repeat(rule_of(character_), 0, kUnbounded),
                                         literal("\"")}));
  // The characters of an unbounded string are written out, for one mask serves all of them.
  grammar_.rules[string_].body.children[1] = repeat(any_character(), 0, kUnbounded);
  blanks_ = add_rule("blanks", options.compact ? sequence({}) : some_blanks());
}

Grammar SchemaCompiler::compile() {
  grammar_.root = rule_for({{&root_, false}}, &root_);
  while (!todo_.empty()) {
    const Todo todo = std::move(todo_.front());
    todo_.pop_front();
    grammar_.rules[todo.rule].body = body_of(todo.conjunction, todo.place);
  }
  return std::move(grammar_);
}

std::uint32_t SchemaCompiler::add_rule(std::string name, Expression body) {
  grammar_.rules.push_back({std::move(name), std::move(body)});
  return static_cast<std::uint32_t>(grammar_.rules.size() - 1);
}

void SchemaCompiler::spend(std::size_t work) {
  work_ += work;
  if (work_ > kMostWork || grammar_.rules.size() > kMostRules) {
    base::raise(ErrorKind::kUsage,
                "JSON schema: it is too large: its parts combine to more than {} rules or {} steps",
                kMostRules, kMostWork);
  }
}

std::uint32_t SchemaCompiler::rule_for(const Conjunction& conjunction, const JsonValue* place) {
  Conjunction key = conjunction;
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  spend(1 + key.size());
  const auto [at, fresh] = rules_.try_emplace(std::move(key), 0);
  if (!fresh) return at->second;
  const std::string name = place ? pointer_to(*place) : "any value";
  at->second = add_rule(name, nothing());
  todo_.push_back({at->second, conjunction, place});
  return at->second;
}

Expression SchemaCompiler::body_of(const Conjunction& conjunction, const JsonValue* place) {
  const Flat flat = flatten(conjunction);
  if (flat.never) return nothing();
  return flat.choices.empty() ? plain_body(flat.plain, place) : alternatives(flat, place);
}

/// anyOf and oneOf: every way to choose one of each list, together with all else.
Expression SchemaCompiler::alternatives(const Flat& flat, const JsonValue* place) {
  std::size_t count = 1;
  for (const JsonValue* list : flat.choices) {
    count *= list->items.size();
    if (flat.choices.size() > 1 && count > kMostCombinations) {
      refuse(*list, fmt::format("together with the other alternatives here it makes more than {} "
                                "combinations",
                                kMostCombinations));
    }
  }
  Conjunction common;
  for (const JsonValue* schema : flat.plain) common.push_back({schema, true});
  std::vector<Expression> ways;
  for (std::size_t n = 0; n < count; ++n) {
    Conjunction way = common;
    const JsonValue* last = place;
    std::size_t rest = n;
    for (const JsonValue* list : flat.choices) {
      last = &list->items[rest % list->items.size()];
      rest /= list->items.size();
      way.push_back({last, false});
    }
    ways.push_back(rule_of(rule_for(way, last)));
  }
  return choice(std::move(ways));
}

SchemaCompiler::Flat SchemaCompiler::flatten(const Conjunction& conjunction) {
  Flat flat;
  std::vector<const JsonValue*> open;
  std::set<const JsonValue*> seen;
  for (const Part& part : conjunction) flatten(part, flat, open, seen);
  return flat;
}

void SchemaCompiler::flatten(const Part& part, Flat& flat, std::vector<const JsonValue*>& open,
                             std::set<const JsonValue*>& seen) {
  const JsonValue& schema = *part.schema;
  spend(1 + schema.members.size());
  if (schema.is_boolean()) {
    flat.never = flat.never || !schema.flag;
    return;
  }
  if (!schema.is_object()) refuse(schema, "expected a schema: an object, true or false");
  if (!part.bare && std::find(open.begin(), open.end(), &schema) != open.end())
    refuse(schema, "this schema refers to itself without describing anything");
  if (!seen.insert(&schema).second) return;
  if (checked_.insert(&schema).second) check_keywords(schema);
  flat.plain.push_back(&schema);
  if (part.bare) return;
  open.push_back(&schema);
  if (open.size() > 500) refuse(schema, "references lead on more than 500 times");
  if (const JsonValue* ref = schema.find("$ref"))
    flatten({target_of(*ref), false}, flat, open, seen);
  if (const JsonValue* all = schema.find("allOf")) {
    for (const JsonValue& item : all->items) flatten({&item, false}, flat, open, seen);
  }
  open.pop_back();
  if (const JsonValue* any = schema.find("anyOf")) flat.choices.push_back(any);
  if (const JsonValue* one = schema.find("oneOf")) {
    require_apart(*one);
    flat.choices.push_back(one);
  }
}

const JsonValue* SchemaCompiler::find_anchor(std::string_view name) const {
  std::vector<const JsonValue*> work = {&root_};
  while (!work.empty()) {
    const JsonValue* value = work.back();
    work.pop_back();
    const JsonValue* anchor = value->is_object() ? value->find("$anchor") : nullptr;
    if (anchor && anchor->is_string() && anchor->text == name) return value;
    for (const JsonValue& item : value->items) work.push_back(&item);
    for (const JsonMember& member : value->members) work.push_back(&member.value);
  }
  return nullptr;
}

const JsonValue* SchemaCompiler::target_of(const JsonValue& ref) const {
  const std::string& text = ref.text;
  const JsonValue* own_id = root_.find("$id");
  std::string_view fragment = text;
  if (own_id && own_id->is_string() && !own_id->text.empty() && text.starts_with(own_id->text))
    fragment.remove_prefix(own_id->text.size());
  if (fragment.empty() && !text.empty()) return &root_;
  if (!fragment.starts_with("#"))
    refuse(ref, "'" + text + "' points outside of this document; only references within it work");
  fragment.remove_prefix(1);
  if (fragment.empty()) return &root_;
  const JsonValue* at = &root_;
  if (fragment[0] != '/') {
    at = find_anchor(fragment);
  } else {
    while (at && !fragment.empty()) {
      const std::size_t end = std::min(fragment.find('/', 1), fragment.size());
      at = step_into(*at, unescaped(fragment.substr(1, end - 1)));
      fragment.remove_prefix(end);
    }
  }
  if (!at) refuse(ref, "'" + text + "' points to nothing in this document");
  return at;
}

Types SchemaCompiler::types_of(const Plain& plain) {
  Types declared = kAllTypes;
  Types implied = 0;
  bool any = false;
  for (const JsonValue* schema : plain) {
    any = any || schema->find("type");
    declared &= declared_types(*schema);
    implied |= implied_types(*schema);
  }
  return any || implied == 0 ? declared : implied;
}

/// What enum and const leave; nothing where there is neither.
std::optional<std::vector<const JsonValue*>> SchemaCompiler::values_of(const Plain& plain) {
  std::optional<std::vector<const JsonValue*>> values;
  const auto meet = [&](std::vector<const JsonValue*> listed) {
    if (!values) {
      values = std::move(listed);
      return;
    }
    std::set<std::string> texts;
    for (const JsonValue* value : listed) texts.insert(compact_json(*value));
    std::erase_if(*values,
                  [&](const JsonValue* value) { return !texts.contains(compact_json(*value)); });
  };
  for (const JsonValue* schema : plain) {
    if (const JsonValue* only = schema->find("const")) meet({only});
    if (const JsonValue* list = schema->find("enum")) {
      std::vector<const JsonValue*> listed;
      for (const JsonValue& item : list->items) listed.push_back(&item);
      meet(std::move(listed));
    }
  }
  return values;
}

Expression SchemaCompiler::plain_body(const Plain& plain, const JsonValue*) {
  if (auto values = values_of(plain)) {
    std::vector<Expression> texts;
    spend(values->size() / 16);
    for (const JsonValue* value : *values) {
      if (admits(plain, *value)) texts.push_back(value_text(*value));
    }
    return choice(std::move(texts));
  }
  const Types types = types_of(plain);
  std::vector<Expression> bodies;
  for (const Types type : {kNullType, kBooleanType, kStringType, kArrayType, kObjectType}) {
    if ((types & type) != 0) bodies.push_back(type_body(type, plain));
  }
  if ((types & kNumberType) != 0) {
    bodies.push_back(type_body(kNumberType, plain));
  } else if ((types & kIntegerType) != 0) {
    bodies.push_back(type_body(kIntegerType, plain));
  }
  return choice(std::move(bodies));
}

/// A listed value as it is written: blanks where other values have them, members as they stand.
Expression SchemaCompiler::value_text(const JsonValue& value) {
  if ((!value.is_array() && !value.is_object()) || options_.compact)
    return literal(compact_json(value));
  std::vector<Expression> parts;
  parts.push_back(literal(value.is_array() ? "[" : "{"));
  auto separate = [&, first = true]() mutable {
    if (!first) parts.push_back(literal(","));
    first = false;
    parts.push_back(rule_of(blanks_));
  };
  for (const JsonValue& item : value.items) {
    separate();
    parts.push_back(value_text(item));
  }
  for (const JsonMember& member : value.members) {
    separate();
    parts.push_back(literal(quoted_json(member.name) + ":"));
    parts.push_back(optional(literal(" ")));
    parts.push_back(value_text(member.value));
  }
  parts.push_back(rule_of(blanks_));
  parts.push_back(literal(value.is_array() ? "]" : "}"));
  return sequence(std::move(parts));
}

Grammar schema_grammar(std::string_view schema, SchemaOptions options) {
  const std::unique_ptr<const JsonValue> root = parse_json(schema);
  return SchemaCompiler(*root, options).compile();
}

}  // namespace lemma::text::constraint
