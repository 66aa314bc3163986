// SPDX-License-Identifier: Apache-2.0
// Upper, lower and title case of whole texts by Unicode's full mappings, as Python's str has them.
#pragma once

#include "text/jinja/text.hpp"

namespace lemma::text::jinja {

Text to_upper(const Text& text);
Text to_lower(const Text& text);
/// Each word starts with a title-case letter and goes on in lower case: str.title().
Text to_title(const Text& text);
/// The first character in title case, the rest in lower case: str.capitalize().
Text capitalize(const Text& text);
Text swap_case(const Text& text);
/// For comparing without regard to case: str.casefold().
Text fold_case(const Text& text);

bool is_upper_letter(char32_t c);
bool is_lower_letter(char32_t c);
/// A letter that has case.
bool is_cased(char32_t c);

}  // namespace lemma::text::jinja
