// SPDX-License-Identifier: Apache-2.0
// The commands of a chat (/help, /undo, ...): one table.
#pragma once

#include <string_view>

#include "cli/chat/dialogue.hpp"

namespace lemma::cli::chat {

/// Carries out `line`, without its '/'. Throws lemma::Error for what is wrong with it.
void run_command(Dialogue& dialogue, std::string_view line);

}  // namespace lemma::cli::chat
