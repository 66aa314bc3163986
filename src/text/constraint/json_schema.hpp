// SPDX-License-Identifier: Apache-2.0
// JSON Schema (draft 2020-12) as a grammar of JSON texts. Every text of the grammar is valid; what
// is valid and not in the grammar is left out on purpose: members come in the order of
// `properties`, then the others; numbers and blanks are bounded; docs/constraints.md has the list.
// A keyword that cannot be honoured is refused by name with its place, never ignored.
#pragma once

#include <string_view>

#include "text/constraint/expression.hpp"

namespace lemma::text::constraint {

struct SchemaOptions {
  bool compact = false;  ///< no blanks between tokens
};

/// Throws kUsage naming the place, as in "#/properties/age/minimum".
Grammar schema_grammar(std::string_view schema, SchemaOptions options = {});

}  // namespace lemma::text::constraint
