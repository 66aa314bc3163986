// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/view.hpp"

#include <gtest/gtest.h>

namespace lemma::cli::chat {
namespace {

using Kind = ChatEvent::Kind;

std::string shown(Look look, const std::vector<ChatEvent>& events) {
  std::string out, err;
  View view(
      look, [&](std::string_view text) { out += text; },
      [&](std::string_view text) { err += text; });
  for (const ChatEvent& event : events) view.show(event);
  view.end_answer();
  return out + (err.empty() ? "" : "|" + err);
}

const std::vector<ChatEvent>& answer() {
  static const std::vector<ChatEvent> events = {
      {Kind::kReasoning, "h", {}}, {Kind::kReasoning, "m", {}}, {Kind::kContent, "Hi", {}}};
  return events;
}

TEST(View, SetsReasoningApart) {
  EXPECT_EQ(shown({}, answer()), "hm\n\nHi\n");
  EXPECT_EQ(shown({.terminal = true, .colours = true}, answer()), "\x1b[2mhm\x1b[0m\n\nHi\n");
}

TEST(View, HidesReasoning) {
  EXPECT_EQ(shown({.reasoning = false}, answer()), "Hi\n");
  EXPECT_EQ(shown({.terminal = true, .reasoning = false}, answer()), "Hi\n|(reasoning, hidden)\n");
}

TEST(View, EndsTheDimmingOfReasoningAlone) {
  EXPECT_EQ(shown({.terminal = true, .colours = true}, {{Kind::kReasoning, "hm", {}}}),
            "\x1b[2mhm\x1b[0m\n");
}

TEST(View, SpellsControlCharactersOnATerminalOnly) {
  const std::vector<ChatEvent> events = {{Kind::kContent, "a\x1b[2Jb\tc\u009bd\x07\n", {}}};
  EXPECT_EQ(shown({.terminal = true}, events), "a^[[2Jb\tc<9B>d^G\n");
  EXPECT_EQ(shown({}, events), "a\x1b[2Jb\tc\u009bd\x07\n");
}

}  // namespace
}  // namespace lemma::cli::chat
