// SPDX-License-Identifier: Apache-2.0
// A conversation as a file: {"messages": [...]} with the messages of OpenAI's chat API, reasoning
// as "reasoning_content". A bare array of messages is read too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lemma/chat.hpp"

namespace lemma::cli::chat {

std::string to_json(const std::vector<Message>& messages);
/// Throws kBadFile naming the message and the key that is wrong.
std::vector<Message> messages_from_json(std::string_view json);

}  // namespace lemma::cli::chat
