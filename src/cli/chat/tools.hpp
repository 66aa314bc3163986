// SPDX-License-Identifier: Apache-2.0
// Tools: functions that a model may call and the local commands that carry them out. A file of them
// is OpenAI's list of tools, each with one key more, the program and its arguments:
//
//   [{"type": "function", "function": {"name": "weather", "parameters": {...}},
//     "command": ["./weather.sh"]}]
//
// The program gets the call's arguments, a JSON object, on its standard input, and what it prints
// is the result. Nothing of a call ever becomes part of a command line.
#pragma once

#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lemma/chat.hpp"

namespace lemma::cli::chat {

struct Tool {
  std::string name;
  std::vector<std::string> command;
  bool always = false;  ///< runs without asking, by the person's word
};

class Tools {
 public:
  Tools() = default;
  /// Throws kBadFile naming the tool and the key that is wrong.
  static Tools parse(std::string_view json);

  /// For a template: the list without commands; empty where there is none.
  const std::string& definitions() const noexcept { return definitions_; }
  std::vector<Tool>& all() noexcept { return tools_; }
  const std::vector<Tool>& all() const noexcept { return tools_; }
  Tool* find(std::string_view name) noexcept;

 private:
  std::vector<Tool> tools_;
  std::string definitions_;
};

struct ToolResult {
  std::string text;  ///< for the model
  bool ok = false;
  bool stopped = false;
};

/// Runs `command` with `input` as its standard input, and ends it, with all that it started, when
/// asked to stop. What cannot be run, fails or prints too much is said in the text.
ToolResult run_tool(const std::vector<std::string>& command, std::string_view input,
                    std::stop_token stop);

}  // namespace lemma::cli::chat
