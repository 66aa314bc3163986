// SPDX-License-Identifier: Apache-2.0
// SchemaCompiler: one schema document on its way to a grammar. What a place must satisfy is a
// conjunction of schema objects (a property's schema, what $ref names, the members of allOf); each
// conjunction becomes one rule, made once, so that recursive schemas end. json_schema.cpp takes
// conjunctions apart, schema_types.cpp writes the rules of the types, schema_object.cpp those of
// objects, schema_one_of.cpp decides whether oneOf may be read as anyOf.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lemma/error.hpp"
#include "text/constraint/char_dfa.hpp"
#include "text/constraint/json_schema.hpp"
#include "text/constraint/json_value.hpp"
#include "text/constraint/schema_keywords.hpp"

namespace lemma::text::constraint {

class SchemaCompiler {
 public:
  static constexpr std::size_t kMostRules = 50000;
  static constexpr std::size_t kMostCombinations = 512;
  static constexpr std::size_t kMostWork = 3'000'000;  ///< values of the document looked at

  SchemaCompiler(const JsonValue& root, SchemaOptions options);
  Grammar compile();

 private:
  /// A schema of a conjunction; bare: without its $ref, allOf, anyOf and oneOf, which have been
  /// taken apart already.
  struct Part {
    const JsonValue* schema;
    bool bare;
    friend auto operator<=>(const Part&, const Part&) = default;
  };
  using Conjunction = std::vector<Part>;  ///< empty: anything
  using Plain = std::vector<const JsonValue*>;

  struct Flat {
    Plain plain;                            ///< keywords of these objects, all of them
    std::vector<const JsonValue*> choices;  ///< and one of each of these lists
    bool never = false;
  };

  struct ObjectShape;
  struct Extra;

  // json_schema.cpp
  std::uint32_t rule_for(const Conjunction& conjunction, const JsonValue* place);
  Expression body_of(const Conjunction& conjunction, const JsonValue* place);
  Expression alternatives(const Flat& flat, const JsonValue* place);
  Expression plain_body(const Plain& plain, const JsonValue* place);
  Flat flatten(const Conjunction& conjunction);
  void flatten(const Part& part, Flat& flat, std::vector<const JsonValue*>& open,
               std::set<const JsonValue*>& seen);
  const JsonValue* target_of(const JsonValue& ref) const;
  const JsonValue* find_anchor(std::string_view name) const;
  static Types types_of(const Plain& plain);
  static std::optional<std::vector<const JsonValue*>> values_of(const Plain& plain);
  bool admits(const Plain& plain, const JsonValue& value);
  Expression value_text(const JsonValue& value);
  std::uint32_t add_rule(std::string name, Expression body);
  void spend(std::size_t work);

  // schema_types.cpp
  Expression type_body(Types type, const Plain& plain);
  Expression number_body(const Plain& plain, bool integral);
  Expression string_body(const Plain& plain);
  Expression array_body(const Plain& plain);
  std::optional<CharDfa> string_dfa(const Plain& plain, std::uint32_t least, std::uint32_t most);
  const CharDfa& dfa_of(const JsonValue& keyword);
  static std::pair<std::uint32_t, std::uint32_t> bounds(const Plain& plain, std::string_view least,
                                                        std::string_view most);

  // schema_object.cpp
  Expression object_body(const Plain& plain);
  ObjectShape shape_of(const Plain& plain);
  void find_extra(const Plain& plain, ObjectShape& shape);
  void check_member_count(const Plain& plain, ObjectShape& shape);
  Expression extra_key(const ObjectShape& shape);
  const JsonValue* property(const JsonValue& schema, const std::string& name);

  // schema_one_of.cpp
  void require_apart(const JsonValue& one_of);
  bool never_valid(const JsonValue& made, const JsonValue& judge, int depth);
  bool never_valid_object(const Flat& flat, const Plain& judge, int depth);

  const JsonValue& root_;
  const SchemaOptions options_;
  Grammar grammar_;
  std::map<Conjunction, std::uint32_t> rules_;  ///< by sorted conjunction
  struct Todo {
    std::uint32_t rule;
    Conjunction conjunction;
    const JsonValue* place;
  };
  std::deque<Todo> todo_;
  std::set<const JsonValue*> checked_;
  std::map<std::string, CharDfa> dfas_;  ///< by pattern
  std::unordered_map<const JsonValue*, std::unordered_map<std::string_view, const JsonValue*>>
      properties_;
  std::size_t work_ = 0;
  // Rules that all schemas share.
  std::uint32_t character_ = 0, string_ = 0, blanks_ = 0;
};

}  // namespace lemma::text::constraint
