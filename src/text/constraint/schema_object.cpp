// SPDX-License-Identifier: Apache-2.0
// The rule of an object: its named members in order, each there or not, then others by key.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/utf8.hpp"
#include "text/constraint/schema_compiler.hpp"

namespace lemma::text::constraint {

/// Members that are not listed.
struct SchemaCompiler::Extra {
  const JsonValue* pattern = nullptr;  ///< a member of patternProperties that keys must match
  Conjunction value;
  std::uint32_t most = kUnbounded;
};

struct SchemaCompiler::ObjectShape {
  struct Member {
    std::string name;
    bool required = false;
    bool possible = true;
    Conjunction value;
  };
  std::vector<Member> members;
  std::optional<Extra> extra;
};

namespace {

/// The strings that are not in a list, as a tree over their characters.
class KeyTree {
 public:
  explicit KeyTree(const std::vector<std::string>& names) {
    nodes_.emplace_back();
    for (const std::string& name : names) {
      std::size_t at = 0;
      for (std::string_view rest = name; !rest.empty();) {
        const base::Decoded c = base::decode_utf8(rest);
        rest.remove_prefix(c.length);
        const auto [child, fresh] = nodes_[at].children.try_emplace(c.code_point, nodes_.size());
        const std::size_t next = child->second;
        if (fresh) nodes_.emplace_back();
        at = next;
      }
      nodes_[at].is_name = true;
    }
  }

  Expression others() const {
    GraphBuilder graph;
    const std::uint32_t free = graph.node();
    graph.edge(free, free, json_chars(regex::CharSet::all()));
    graph.silent(free, GraphBuilder::kEnd);
    std::vector<std::uint32_t> places = {GraphBuilder::kStart};
    while (places.size() < nodes_.size()) places.push_back(graph.node());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      regex::CharSet listed;
      for (const auto& [c, child] : nodes_[i].children) {
        listed.add(c, c);
        graph.edge(places[i], places[child], json_chars({{c, c}}));
      }
      graph.edge(places[i], free, json_chars(listed.complement()));
      if (!nodes_[i].is_name) graph.silent(places[i], GraphBuilder::kEnd);
    }
    return graph.take();
  }

 private:
  struct Node {
    std::map<char32_t, std::size_t> children;
    bool is_name = false;
  };
  std::vector<Node> nodes_;
};

}  // namespace

const JsonValue* SchemaCompiler::property(const JsonValue& schema, const std::string& name) {
  const JsonValue* listed = schema.find("properties");
  if (!listed) return nullptr;
  if (listed->members.size() < 16) return listed->find(name);
  auto& index = properties_[listed];
  if (index.empty()) {
    for (const JsonMember& member : listed->members) index.emplace(member.name, &member.value);
  }
  const auto at = index.find(name);
  return at == index.end() ? nullptr : at->second;
}

SchemaCompiler::ObjectShape SchemaCompiler::shape_of(const Plain& plain) {
  ObjectShape shape;
  std::map<std::string, std::size_t> places;
  const auto place_of = [&](const std::string& name) {
    const auto [at, fresh] = places.try_emplace(name, shape.members.size());
    if (fresh) shape.members.push_back({name, false, true, {}});
    return at->second;
  };
  for (const JsonValue* schema : plain) {
    if (const JsonValue* listed = schema->find("properties"))
      for (const JsonMember& member : listed->members) place_of(member.name);
  }
  for (const JsonValue* schema : plain) {
    if (const JsonValue* names = schema->find("required"))
      for (const JsonValue& name : names->items) shape.members[place_of(name.text)].required = true;
  }
  for (auto& member : shape.members) {
    spend(plain.size());
    for (const JsonValue* schema : plain) {
      const JsonValue* own = property(*schema, member.name);
      const JsonValue* patterns = schema->find("patternProperties");
      bool matched = false;
      for (std::size_t i = 0; patterns && i < patterns->members.size(); ++i) {
        const JsonMember& pattern = patterns->members[i];
        if (!pattern_dfa(pattern.name).accepts_text(member.name)) continue;
        matched = true;
        member.value.push_back({&pattern.value, false});
      }
      if (!own && !matched) own = schema->find("additionalProperties");
      if (!own) continue;
      if (own->is_boolean() && !own->flag) member.possible = false;
      member.value.push_back({own, false});
    }
  }
  find_extra(plain, shape);
  check_member_count(plain, shape);
  return shape;
}

/// Other members: open where a schema says so, or says nothing and lists no members.
void SchemaCompiler::find_extra(const Plain& plain, ObjectShape& shape) {
  Extra extra;
  bool open = false;
  bool closed = false;
  bool lists = false;
  for (const JsonValue* schema : plain) {
    const JsonValue* others = schema->find("additionalProperties");
    const JsonValue* patterns = schema->find("patternProperties");
    lists = lists || schema->find("properties") || (patterns && !patterns->members.empty());
    if (others && others->is_boolean() && !others->flag) {
      closed = true;
    } else if (others) {
      open = true;
      extra.value.push_back({others, false});
    }
    if (!patterns || patterns->members.empty()) continue;
    const bool shuts = !others || (others->is_boolean() && !others->flag);
    if (patterns->members.size() > 1 || !shuts || extra.pattern)
      refuse(*patterns, "only one pattern, without other additional members, is supported");
    extra.pattern = &patterns->members.front().value;
    extra.value.push_back({extra.pattern, false});
  }
  if (extra.pattern) {
    for (const JsonValue* schema : plain) {
      // A key that matches must also satisfy what another schema says of keys it does not list.
      const JsonValue* others = schema->find("additionalProperties");
      if (others && !schema->find("patternProperties"))
        refuse(*others, "beside the patternProperties of another schema it is not supported");
    }
    shape.extra = std::move(extra);
  } else if (!closed && (open || !lists)) {
    shape.extra = std::move(extra);
  }
}

void SchemaCompiler::check_member_count(const Plain& plain, ObjectShape& shape) {
  const auto required = static_cast<std::size_t>(std::count_if(
      shape.members.begin(), shape.members.end(), [](const auto& m) { return m.required; }));
  for (const JsonValue* schema : plain) {
    const JsonValue* least = schema->find("minProperties");
    if (least && count_of(*schema, "minProperties", 0) > required)
      refuse(*least, "more members than are required: 'minProperties' is not supported here");
    const JsonValue* most = schema->find("maxProperties");
    if (!most) continue;
    const std::uint32_t count = count_of(*schema, "maxProperties", 0);
    if (shape.members.size() > count || (shape.extra && required != shape.members.size()))
      refuse(*most, "'maxProperties' is supported only where all listed members are required");
    if (shape.extra) {
      shape.extra->most =
          std::min(shape.extra->most, count - static_cast<std::uint32_t>(shape.members.size()));
    }
  }
}

Expression SchemaCompiler::extra_key(const ObjectShape& shape) {
  if (const JsonValue* pattern = shape.extra->pattern) {
    const std::string& text = pattern->parent->members[pattern->index].name;
    try {
      CharDfa dfa = pattern_dfa(text);
      for (const auto& member : shape.members) {
        if (dfa.accepts_text(member.name))
          refuse(*pattern, "the pattern also matches the listed member '" + member.name + "'");
      }
      return sequence({literal("\""), dfa.in_json(), literal("\"")});
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with("JSON schema")) throw;
      refuse(*pattern, error.what());
    }
  }
  if (shape.members.empty()) return rule_of(string_);
  std::vector<std::string> names;
  for (const auto& member : shape.members) names.push_back(member.name);
  return sequence({literal("\""), KeyTree(names).others(), literal("\"")});
}

Expression SchemaCompiler::object_body(const Plain& plain) {
  const ObjectShape shape = shape_of(plain);
  const Expression colon =
      options_.compact ? literal(":") : sequence({literal(":"), optional(literal(" "))});
  GraphBuilder graph;
  std::uint32_t none = graph.node();  // no member is written yet
  std::uint32_t some = graph.node();  // a comma comes before the next one
  graph.edge(GraphBuilder::kStart, none, literal("{"));
  const std::uint32_t blanks = graph.add(rule_of(blanks_));
  const std::uint32_t comma = graph.add(sequence({literal(","), rule_of(blanks_)}));
  for (const auto& member : shape.members) {
    if (!member.possible && member.required) return nothing();
    if (!member.possible) continue;
    const std::uint32_t key = graph.node();
    const std::uint32_t value = graph.node();
    const std::uint32_t next_none = graph.node();
    const std::uint32_t next_some = graph.node();
    graph.edge(none, key, blanks);
    graph.edge(some, key, comma);
    if (!member.required) {
      graph.silent(none, next_none);
      graph.silent(some, next_some);
    }
    graph.edge(key, value, sequence({literal(quoted_json(member.name)), colon}));
    const JsonValue* place = member.value.empty() ? nullptr : member.value.front().schema;
    graph.edge(value, next_some, rule_of(rule_for(member.value, place)));
    none = next_none;
    some = next_some;
  }
  if (shape.extra && shape.extra->most > 0) {
    const JsonValue* place =
        shape.extra->value.empty() ? nullptr : shape.extra->value.front().schema;
    const std::uint32_t pair =
        add_rule(place ? pointer_to(*place) : "any member",
                 sequence({extra_key(shape), colon, rule_of(rule_for(shape.extra->value, place))}));
    const std::uint32_t most = shape.extra->most;
    const std::uint32_t first = graph.node();
    graph.edge(none, first, sequence({rule_of(blanks_), rule_of(pair)}));
    const auto next = [&](std::uint32_t count) {
      return repeat(sequence({literal(","), rule_of(blanks_), rule_of(pair)}), 0, count);
    };
    const std::uint32_t last = graph.node();
    graph.edge(first, last, next(most == kUnbounded ? kUnbounded : most - 1));
    graph.edge(some, last, next(most));
    graph.silent(last, some = graph.node());
  }
  const std::uint32_t close = graph.node();
  graph.silent(none, close);
  graph.silent(some, close);
  graph.edge(close, GraphBuilder::kEnd, sequence({rule_of(blanks_), literal("}")}));
  return graph.take();
}

}  // namespace lemma::text::constraint
