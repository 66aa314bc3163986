// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "cli/chat/line_reader.hpp"

namespace lemma::cli::chat {
namespace {

constexpr std::string_view kPrompt = "> ", kMore = ". ", kFence = "\"\"\"";

/// True if the line goes on; what says so is taken off.
bool take_continuation(std::string& line) {
  if (!line.ends_with('\\')) return false;
  line.pop_back();
  return !line.ends_with('\\');
}

Input stopped(Line::Kind kind, std::string text) {
  const bool ended = kind == Line::Kind::kEnd;
  return {ended ? Input::Kind::kUnfinished : Input::Kind::kInterrupted, std::move(text)};
}

}  // namespace

Input MessageReader::read() {
  Line line = reader_.read(kPrompt);
  if (line.kind == Line::Kind::kEnd) return {Input::Kind::kEnd, {}};
  if (line.kind == Line::Kind::kInterrupted) return stopped(line.kind, std::move(line.text));
  if (line.text.starts_with(kFence)) return read_block(line.text.substr(kFence.size()));
  std::string text;
  while (take_continuation(line.text)) {
    text += line.text + "\n";
    line = reader_.read(kMore);
    if (line.kind != Line::Kind::kText) return stopped(line.kind, text + line.text);
  }
  text += line.text;
  if (text.starts_with("//")) return {Input::Kind::kMessage, text.substr(1)};
  if (text.starts_with('/')) return {Input::Kind::kCommand, text.substr(1)};
  return {Input::Kind::kMessage, std::move(text)};
}

/// `text` stands behind the fence that opened the block.
Input MessageReader::read_block(std::string text) {
  bool first = true;
  for (std::size_t from = 0;;) {
    const std::size_t end = text.find(kFence, from);
    if (end != std::string::npos) {
      // Blanks alone may stand behind the closing fence; the last line break is the fence's.
      const std::string_view behind = std::string_view(text).substr(end + kFence.size());
      if (behind.find_first_not_of(" \t") == std::string_view::npos) {
        text.resize(end);
        if (text.ends_with('\n')) text.pop_back();
        return {Input::Kind::kMessage, std::move(text)};
      }
    }
    Line line = reader_.read(kMore);
    if (line.kind != Line::Kind::kText) return stopped(line.kind, std::move(text));
    if (!first || !text.empty()) text += '\n';
    first = false;
    from = text.size() - (text.empty() ? 0 : 1);
    text += line.text;
  }
}

}  // namespace lemma::cli::chat
