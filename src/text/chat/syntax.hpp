// SPDX-License-Identifier: Apache-2.0
// Which markers a model uses, read off its template's own words.
#pragma once

#include <string_view>

#include "lemma/chat.hpp"

namespace lemma::text::chat {

/// The syntax whose markers stand in the template's source.
ChatSyntax syntax_of(std::string_view source);

}  // namespace lemma::text::chat
