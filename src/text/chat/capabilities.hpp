// SPDX-License-Identifier: Apache-2.0
// What a template supports, found by rendering small conversations with words that occur nowhere
// else and looking for them. A template may refuse any of them: that is an answer too.
#pragma once

#include <string_view>

#include "lemma/chat.hpp"
#include "text/chat/conversation.hpp"
#include "text/jinja/template.hpp"

namespace lemma::text::chat {

ChatCapabilities probe(const jinja::Template& parsed, std::string_view bos, std::string_view eos);

/// How to put a conversation to a template of these capabilities.
Form form_of(const ChatCapabilities& capabilities);

}  // namespace lemma::text::chat
