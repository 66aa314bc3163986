// SPDX-License-Identifier: Apache-2.0
// What stands behind ChatParser: one parser for answers with reasoning between two markers and tool
// calls in blocks, and one for the harmony format.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "lemma/chat.hpp"

namespace lemma::text::chat {

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  /// Takes more text; nothing follows where `final`.
  virtual void take(std::string_view text, bool final) = 0;
  std::vector<ChatEvent> events() { return std::exchange(events_, {}); }

 protected:
  /// Adds text to the last event if that is of the same kind.
  void emit(ChatEvent::Kind kind, std::string_view text);
  void emit(ToolCall call);

 private:
  std::vector<ChatEvent> events_;
};

std::unique_ptr<AnswerParser> make_block_parser(ChatSyntax syntax, ChatParserOptions options);
std::unique_ptr<AnswerParser> make_harmony_parser(ChatParserOptions options);

/// The length of the longest end of `text` with which `marker` could begin, but not all of it.
std::size_t partial_marker(std::string_view text, std::string_view marker);

}  // namespace lemma::text::chat
