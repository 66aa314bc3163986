// SPDX-License-Identifier: Apache-2.0
// In place of editing_reader.cpp where libedit was not found.
#include "cli/chat/line_reader.hpp"

namespace lemma::cli::chat {

std::unique_ptr<LineReader> editing_reader() {
  return nullptr;
}

}  // namespace lemma::cli::chat
