// SPDX-License-Identifier: Apache-2.0
// A conversation as the variables that chat templates expect. Roles, and the words that are always
// the same, are the template's own; everything else is marked as input.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lemma/chat.hpp"
#include "text/jinja/value.hpp"

namespace lemma::text::chat {

/// How a template wants things put.
struct Form {
  bool parts = false;            ///< content of several parts as a list
  bool only_parts = false;       ///< all content as a list
  bool object_arguments = true;  ///< arguments of calls as dicts, not as JSON text
};

/// The variables of a prompt. Throws kUsage for JSON that is none, or of the wrong shape.
jinja::Value variables_of(const Conversation& conversation, const Form& form, std::string_view bos,
                          std::string_view eos, bool add_generation_prompt);

/// `given` with bos_token and eos_token where it lacks them.
jinja::Value with_tokens(const jinja::Value& given, std::string_view bos, std::string_view eos);

}  // namespace lemma::text::chat
