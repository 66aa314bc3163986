// SPDX-License-Identifier: Apache-2.0
// Patterns of names, as a user writes them: '*' stands for any text, '?' for one byte, everything
// else for itself.
#pragma once

#include <string_view>

namespace lemma::base {

/// Whether all of `text` fits `pattern`. Takes at most the product of both lengths.
bool matches_wildcard(std::string_view pattern, std::string_view text) noexcept;

}  // namespace lemma::base
