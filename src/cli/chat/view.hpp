// SPDX-License-Identifier: Apache-2.0
// View: what a conversation looks like. Answers go to one sink, everything else to the other. On a
// terminal reasoning is dim, and what would be a control sequence is spelt out, so that no model
// and no tool can draw on the screen; in a pipe the bytes are the answer's own.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cli/chat/wrapper.hpp"
#include "lemma/chat.hpp"

namespace lemma::cli::chat {

struct Look {
  bool terminal = false;  ///< answers are read on a terminal
  bool colours = false;   ///< escape sequences may be used
  bool reasoning = true;  ///< reasoning is shown
  bool wraps = true;      ///< lines are broken between words, where the columns are known
  std::function<std::size_t()> columns{};  ///< of the terminal; none: it is none
};

class View {
 public:
  using Sink = std::function<void(std::string_view)>;
  View(Look how, Sink out, Sink err) : look(how), out_(std::move(out)), err_(std::move(err)) {}

  /// A part of an answer, as it comes.
  void show(const ChatEvent& event);
  /// The answer is over.
  void end_answer();

  void note(std::string_view text);   ///< a line that nobody must read
  void say(std::string_view text);    ///< an answer to a command
  void error(std::string_view text);  ///< "lemma: ..."

  Look look;

 private:
  enum class Place { kStart, kReasoning, kContent };
  void enter(Place place);
  void answer(std::string_view text);
  void flush();

  Sink out_, err_;
  Wrapper wrapper_;
  Place place_ = Place::kStart;
  bool line_open_ = false;    ///< the answer does not end in a line break
  bool said_hidden_ = false;  ///< that reasoning goes on unseen
};

/// `text` with control characters spelt: ^[ for escape. Line breaks and tabs stay.
std::string printable(std::string_view text);

}  // namespace lemma::cli::chat
