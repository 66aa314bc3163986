// SPDX-License-Identifier: Apache-2.0
// LineReader: one line from a person or a pipe. MessageReader: lines become messages and commands:
//   - a line that begins with '/' is a command; "//" is a message that begins with '/';
//   - a line that ends in '\' goes on in the next one ("\\" at the end is one '\');
//   - a message that begins with """ goes on to the next """.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lemma::cli::chat {

struct Line {
  enum class Kind { kText, kInterrupted, kEnd };
  Kind kind = Kind::kText;
  std::string text;  ///< without its line break; of an interrupted one what was typed so far
};

class LineReader {
 public:
  virtual ~LineReader() = default;
  virtual Line read(std::string_view prompt) = 0;
  /// A message that the person may want to call back.
  virtual void remember(std::string_view) {}
};

/// Standard input as it comes, with no prompt unless it is a terminal.
std::unique_ptr<LineReader> plain_reader();
/// A line editor with history, or null where lemma was built without one.
std::unique_ptr<LineReader> editing_reader();

struct Input {
  enum class Kind {
    kMessage,
    kCommand,      ///< text without its '/'
    kInterrupted,  ///< Ctrl-C; text says what was given up
    kUnfinished,   ///< the input ended inside a message, which is text
    kEnd,
  };
  Kind kind = Kind::kMessage;
  std::string text;
};

class MessageReader {
 public:
  /// `reader` must outlive this.
  explicit MessageReader(LineReader& reader) : reader_(reader) {}
  Input read();

 private:
  Input read_block(std::string text);
  LineReader& reader_;
};

}  // namespace lemma::cli::chat
