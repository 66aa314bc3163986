// SPDX-License-Identifier: Apache-2.0
// The code points of the scripts that expressions of published tokenizers name with \p{...}.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "text/regex/char_set.hpp"

namespace lemma::text::regex {

/// The ranges of the script called `name` (lower case, letters only), or nothing.
std::optional<std::span<const CharRange>> script_ranges(std::string_view name);

}  // namespace lemma::text::regex
