// SPDX-License-Identifier: Apache-2.0
// Operations on texts that methods of str and filters share.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/jinja/budget.hpp"
#include "text/jinja/text.hpp"

namespace lemma::text::jinja {

enum class Side : std::uint8_t { kLeft, kRight, kBoth };

/// Without white space, or without the characters given, at the sides named.
Text strip(const Text& text, const Text* characters, Side side);

/// The first `count` places of `old` replaced; all of them where `count` is negative.
Text replace(Budget& budget, const Text& text, const Text& old, const Text& with,
             std::int64_t count);

/// Filled up to `width` code points, at the sides named.
Text pad(Budget& budget, const Text& text, std::int64_t width, std::string_view fill, Side side);

/// True if there are letters with case, and all of them are upper (or lower).
bool is_all_cased(std::string_view text, bool upper);

}  // namespace lemma::text::jinja
