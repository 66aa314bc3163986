// SPDX-License-Identifier: Apache-2.0
// Constraint: a form that the generated text must have. Tokens that would leave it cannot be
// chosen, end tokens included: the text ends where the form may end, and nowhere else (a limit on
// tokens can still cut it short). What is allowed keeps its logits, bit for bit.
// docs/constraints.md has both languages in full.
//
//   request.constraint = lemma::Constraint::json_schema(R"({"type": "object"})");
//   request.constraint = lemma::Constraint::grammar(R"(root ::= "yes" | "no")");
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lemma {

struct Constraint {
  enum class Kind : std::uint8_t {
    kJsonSchema,  ///< JSON Schema, draft 2020-12
    kGrammar,     ///< GBNF, the grammar language of llama.cpp
  };
  Kind kind = Kind::kJsonSchema;
  std::string text;
  bool compact = false;  ///< of a schema: no blanks outside of strings
  /// The form begins behind the first occurrence of this text, up to four blanks apart: the end of
  /// a reasoning, which must come, so that the text cannot end before it. Empty: at once.
  std::string after;
  /// The form begins with the first of these texts that comes, and is no more than that: a text
  /// without any is free. None: at once.
  std::vector<std::string> triggers = {};

  static Constraint json_schema(std::string schema) {
    return {Kind::kJsonSchema, std::move(schema), false, {}, {}};
  }
  static Constraint grammar(std::string gbnf) {
    return {Kind::kGrammar, std::move(gbnf), false, {}, {}};
  }
  static Constraint json_object() { return json_schema(R"({"type": "object"})"); }
};

}  // namespace lemma
