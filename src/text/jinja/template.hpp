// SPDX-License-Identifier: Apache-2.0
// Template: a chat template, parsed once and rendered with any variables. The language is Jinja 2
// as Hugging Face's transformers sets it up: the immutable sandbox, default undefined values,
// trim_blocks and lstrip_blocks, break and continue, generation blocks, raise_exception(),
// strftime_now() and a tojson that does not escape. What is not supported is an error with line,
// column and reason; nothing is ever replaced by something else. Thread-safe; no state between
// renderings.
//
//   Template tmpl = Template::parse(source);
//   Text prompt = tmpl.render(read_json(R"({"messages": [...]})"));
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "text/jinja/budget.hpp"
#include "text/jinja/text.hpp"
#include "text/jinja/value.hpp"

namespace lemma::text::jinja {

struct Syntax;

/// A point of civil time, as strftime_now() prints it.
struct CivilTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
};

struct RenderOptions {
  Limits limits;
  std::optional<CivilTime> now;  ///< none: the machine's local time
};

class Template {
 public:
  /// Throws kTemplate: "line L, column C: reason".
  static Template parse(std::string_view source);

  /// `variables` is a dict. Throws kTemplate: where the template raises an exception itself, with
  /// its words; where the rendering fails, with Python's.
  Text render(const Value& variables, const RenderOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const Syntax> syntax);
  std::shared_ptr<const Syntax> syntax_;
};

}  // namespace lemma::text::jinja
