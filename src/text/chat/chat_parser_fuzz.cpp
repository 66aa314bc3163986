// SPDX-License-Identifier: Apache-2.0
// Fuzz target: any text is an answer in any syntax. However it is cut, the same must come out; and
// what is not part of a tool call, a marker or white space must come out as text. Byte 0 chooses
// the syntax and the markers of the reasoning, byte 1 the cuts.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "lemma/chat.hpp"
#include "text/chat/tool_blocks.hpp"

namespace {

using namespace lemma;

struct Answer {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  bool operator==(const Answer&) const = default;
};

void add(Answer& answer, const std::vector<ChatEvent>& events) {
  for (const ChatEvent& event : events) {
    switch (event.kind) {
      case ChatEvent::Kind::kReasoning:
        answer.reasoning += event.text;
        break;
      case ChatEvent::Kind::kContent:
        answer.content += event.text;
        break;
      case ChatEvent::Kind::kToolCall:
        LEMMA_CHECK(!event.call.name.empty());
        LEMMA_CHECK(text::chat::is_arguments(event.call.arguments));
        answer.calls.push_back(event.call);
        break;
    }
  }
}

/// Parses in pieces of `width` bytes, and of twice that, and so on; whole for 0.
Answer parse(const ChatSyntax& syntax, bool in_reasoning, std::string_view text,
             std::size_t width) {
  ChatParser parser(syntax, {in_reasoning, {}});
  Answer answer;
  if (width == 0) width = text.size() + 1;
  for (std::size_t at = 0, step = width; at < text.size(); at += step, step = step % 9 + width)
    add(answer, parser.push(text.substr(at, step)));
  add(answer, parser.finish());
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 1 << 14) return 0;
  constexpr std::array<std::array<const char*, 2>, 4> kReasonings = {
      {{"", ""},
       {"<think>", "</think>"},
       {"[THINK]", "[/THINK]"},
       {"<|channel>thought", "<channel|>"}}};
  constexpr int kSyntaxes = static_cast<int>(ToolSyntax::kGigaChat) + 1;
  ChatSyntax syntax;
  syntax.tools = static_cast<ToolSyntax>(data[0] % kSyntaxes);
  const auto& reasoning = kReasonings[data[0] / kSyntaxes % kReasonings.size()];
  syntax.reasoning_begin = reasoning[0];
  syntax.reasoning_end = reasoning[1];
  const bool in_reasoning = (data[1] & 1) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Answer whole = parse(syntax, in_reasoning, text, 0);
  LEMMA_CHECK(parse(syntax, in_reasoning, text, 1) == whole);
  LEMMA_CHECK(parse(syntax, in_reasoning, text, 1 + data[1] / 2u) == whole);
  LEMMA_CHECK(whole.reasoning.size() + whole.content.size() <= text.size());
  return 0;
}
