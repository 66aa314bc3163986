// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/view.hpp"

#include <fmt/format.h>

#include "base/utf8.hpp"

namespace lemma::cli::chat {
namespace {

constexpr std::string_view kDim = "\x1b[2m", kRed = "\x1b[31m", kPlain = "\x1b[0m";

std::string coloured(bool colours, std::string_view colour, std::string_view text) {
  if (!colours) return std::string(text);
  return fmt::format("{}{}{}", colour, text, kPlain);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const base::Decoded next = base::decode_utf8(text);
    const char32_t code = next.code_point;
    if (!next.valid)
      base::append_utf8(out, base::kReplacementCharacter);
    else if (code < 0x20 && code != '\n' && code != '\t')
      out += {'^', static_cast<char>('@' + static_cast<char>(code))};
    else if (code == 0x7f)
      out += "^?";
    else if (code >= 0x80 && code < 0xa0)
      out += fmt::format("<{:02X}>", static_cast<unsigned>(code));
    else
      out += text.substr(0, next.length);
    text.remove_prefix(next.length);
  }
  return out;
}

void View::answer(std::string_view text) {
  if (text.empty()) return;
  std::string shown = look.terminal ? printable(text) : std::string(text);
  if (look.columns) shown = wrapper_.take(shown, look.wraps ? look.columns() : 0);
  if (!shown.empty()) out_(shown);
  line_open_ = !text.ends_with('\n');
}

/// Prints what is held back, in the colours that it came in.
void View::flush() {
  const std::string held = wrapper_.flush();
  if (!held.empty()) out_(held);
  wrapper_.restart();
}

void View::enter(Place place) {
  if (place == place_) return;
  flush();
  if (place_ == Place::kReasoning && look.colours) out_(kPlain);
  // A blank line between reasoning and what it led to.
  if (place_ == Place::kReasoning && look.reasoning) out_(line_open_ ? "\n\n" : "\n");
  if (place_ == Place::kContent && line_open_) out_("\n");
  if (place != place_) line_open_ = false;
  place_ = place;
  if (place == Place::kReasoning && look.reasoning && look.colours) out_(kDim);
}

void View::show(const ChatEvent& event) {
  switch (event.kind) {
    case ChatEvent::Kind::kReasoning:
      if (event.text.empty()) return;
      if (!look.reasoning) {
        if (look.terminal && !said_hidden_) note("(reasoning, hidden)");
        said_hidden_ = true;
        return;
      }
      enter(Place::kReasoning);
      return answer(event.text);
    case ChatEvent::Kind::kContent:
      if (event.text.empty()) return;
      enter(Place::kContent);
      return answer(event.text);
    case ChatEvent::Kind::kToolCall:
      enter(Place::kStart);
      return;
  }
}

void View::end_answer() {
  flush();
  // Reasoning alone, without an answer, ends its own colours and line.
  if (place_ == Place::kReasoning && look.colours) out_(kPlain);
  if (line_open_) out_("\n");
  place_ = Place::kStart;
  line_open_ = said_hidden_ = false;
}

void View::note(std::string_view text) {
  err_(coloured(look.colours, kDim, printable(text)) + "\n");
}

void View::say(std::string_view text) {
  err_(printable(text) + (text.ends_with('\n') ? "" : "\n"));
}

void View::error(std::string_view text) {
  err_(coloured(look.colours, kRed, printable(fmt::format("lemma: {}", text))) + "\n");
}

}  // namespace lemma::cli::chat
