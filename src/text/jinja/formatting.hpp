// SPDX-License-Identifier: Apache-2.0
// Python's two ways to fill a text with values: the % operator and str.format().
#pragma once

#include <string_view>

#include "text/jinja/budget.hpp"
#include "text/jinja/value.hpp"

namespace lemma::text::jinja {

/// text % values: a tuple fills in order, a dict by name, anything else is the one value.
Text format_percent(Budget& budget, const Text& text, const Value& values);

/// text.format(arguments...).
Text format_braces(Renderer& renderer, const Text& text, const Arguments& arguments);

/// format(value, spec), as an f-string's {value:spec}.
Text format_value(Budget& budget, const Value& value, std::string_view spec);

}  // namespace lemma::text::jinja
