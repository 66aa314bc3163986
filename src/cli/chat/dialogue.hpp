// SPDX-License-Identifier: Apache-2.0
// Dialogue: the loop of a chat: input becomes turns and commands, a turn is an answer and the calls
// of tools that it asks for. A turn that fails changes nothing: the history is what it was before.
// Everything that it needs comes from outside, so that tests can script it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat/line_reader.hpp"
#include "cli/chat/settings.hpp"
#include "cli/chat/speaker.hpp"
#include "cli/chat/tools.hpp"
#include "cli/chat/view.hpp"
#include "lemma/chat.hpp"

namespace lemma::cli::chat {

/// Runs a turn so that it can be stopped from outside (Ctrl-C); returns when the turn does.
using Stoppable = std::function<void(const std::function<void(std::stop_token)>&)>;

struct DialogueParts {
  LineReader& lines;
  View& view;
  Speaker& speaker;
  Stoppable stoppable;
  bool interactive = false;  ///< a person is there, who can be asked
  bool trust_tools = false;  ///< tools run without asking
};

class Dialogue {
 public:
  Dialogue(DialogueParts parts, Settings settings) : parts_(parts), settings_(settings) {
    parts_.view.look.reasoning = settings_.reasoning;
  }

  /// Reads until the input ends or someone leaves. True if everything that was asked was done.
  bool run();
  /// One message by itself. The same.
  bool run_one(const std::string& message);

  // Also for the command line. They throw lemma::Error, with nothing changed.
  void set_system(std::string text);  ///< empty: none
  void set_tools(const std::string& file);
  void load(const std::string& file);

  const std::vector<Message>& messages() const noexcept { return messages_; }

 private:
  friend struct CommandBodies;
  void command(const std::string& line);
  bool interrupted(const Input& input);
  void ask(std::string text);
  void turn(std::vector<Message> before);
  void rounds(const std::vector<Message>& before, std::stop_token stop);
  bool call_tools(Message& asked, std::stop_token stop);
  std::string run_call(const ToolCall& call, std::stop_token stop);
  bool allowed(Tool& tool, const ToolCall& call);
  void explain_full(const Error& error);
  void report(const Answer& answer);
  void fail(std::string_view message);

  DialogueParts parts_;
  Settings settings_;
  Tools tools_;
  std::vector<Message> messages_;
  std::string files_;  ///< texts of files in front of the next message
  std::size_t context_used_ = 0;
  std::uint64_t last_seed_ = 0;
  std::size_t calls_ = 0;  ///< made so far; their ids
  bool failed_ = false, leaving_ = false, warned_ = false, calls_refused_ = false;
};

}  // namespace lemma::cli::chat
