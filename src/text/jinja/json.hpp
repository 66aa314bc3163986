// SPDX-License-Identifier: Apache-2.0
// JSON at the engine's edges: a document becomes values whose strings carry the mark of their
// origin, and a value becomes JSON text as Python's json.dumps writes it.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/budget.hpp"
#include "text/jinja/value.hpp"

namespace lemma::text::jinja {

/// Throws kUsage, naming the place, for text that is not JSON, nests too deep or holds an integer
/// outside 64 bits. Of equal keys the last one counts, in the place of the first, as in Python.
Value read_json(std::string_view text, bool from_input = true);

struct JsonStyle {
  bool ensure_ascii = false;  ///< characters outside ASCII as \u escapes
  bool pretty = false;        ///< one element a line, indented by `indent` for each level
  std::string indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};

/// Throws kTemplate for what JSON cannot express.
Text write_json(Budget& budget, const Value& value, const JsonStyle& style = {});

}  // namespace lemma::text::jinja
