// SPDX-License-Identifier: Apache-2.0
#include "text/chat/syntax.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "base/raise.hpp"

namespace lemma::text::chat {
namespace {

struct Sign {
  std::string_view marker;
  ToolSyntax syntax;
};

/// In this order: a template may hold the marker of a later one as well.
constexpr std::array<Sign, 21> kSigns = {{
    {"<|channel|>", ToolSyntax::kHarmony},
    {"｜DSML｜", ToolSyntax::kDsml},
    {"<|tool_calls_section_begin|>", ToolSyntax::kKimi},
    {"<minimax:tool_call>", ToolSyntax::kMiniMax},
    {"<|function_call|>", ToolSyntax::kGigaChat},
    {"<|role_sep|>", ToolSyntax::kGigaChat},
    {"minimax:tool_call", ToolSyntax::kMiniMax},
    {"<｜tool▁calls▁begin｜>", ToolSyntax::kDeepSeek},
    {"[TOOL_CALLS]", ToolSyntax::kMistral},
    {"<|START_ACTION|>", ToolSyntax::kCommandR},
    {"<|tool_call>", ToolSyntax::kGemma},
    {"<start_function_call>", ToolSyntax::kFunctionGemma},
    {"<|tool_call|>", ToolSyntax::kGranite},
    {"<|python_tag|>", ToolSyntax::kLlama},
    {"```tool_code", ToolSyntax::kToolCode},
    {"<tool_call>", ToolSyntax::kTagged},
    {"<function=", ToolSyntax::kTagged},
    {"<tool_calls>", ToolSyntax::kTagged},
    {"Environment: ipython", ToolSyntax::kLlama},
    {"{\"name\": function name, \"parameters\":", ToolSyntax::kLlama},
    {"Action:", ToolSyntax::kCommandRPlus},
}};

struct Reasoning {
  std::string_view end, begin;
};

constexpr std::array<Reasoning, 6> kReasonings = {{
    {"</think>", "<think>"},
    {"[/THINK]", "[THINK]"},
    {"<|END_THINKING|>", "<|START_THINKING|>"},
    {"<channel|>", "<|channel>thought"},
    {"</seed:think>", "<seed:think>"},
    {"Here is my response:", "Here is my thought process:"},
}};

constexpr std::array<std::pair<ToolSyntax, std::string_view>, 16> kWords = {{
    {ToolSyntax::kNone, "none"},
    {ToolSyntax::kTagged, "tagged"},
    {ToolSyntax::kLlama, "llama"},
    {ToolSyntax::kMistral, "mistral"},
    {ToolSyntax::kDeepSeek, "deepseek"},
    {ToolSyntax::kDsml, "dsml"},
    {ToolSyntax::kHarmony, "harmony"},
    {ToolSyntax::kKimi, "kimi"},
    {ToolSyntax::kMiniMax, "minimax"},
    {ToolSyntax::kGemma, "gemma"},
    {ToolSyntax::kFunctionGemma, "functiongemma"},
    {ToolSyntax::kToolCode, "toolcode"},
    {ToolSyntax::kGranite, "granite"},
    {ToolSyntax::kCommandR, "command-r"},
    {ToolSyntax::kCommandRPlus, "command-r-plus"},
    {ToolSyntax::kGigaChat, "gigachat"},
}};

}  // namespace

ChatSyntax syntax_of(std::string_view source) {
  ChatSyntax syntax;
  const auto holds = [&](std::string_view marker) { return source.find(marker) != source.npos; };
  for (const Sign& sign : kSigns) {
    if (!holds(sign.marker)) continue;
    syntax.tools = sign.syntax;
    break;
  }
  for (const Reasoning& reasoning : kReasonings) {
    if (!holds(reasoning.end)) continue;
    syntax.reasoning_begin = reasoning.begin;
    syntax.reasoning_end = reasoning.end;
    break;
  }
  return syntax;
}

}  // namespace lemma::text::chat

namespace lemma {

std::string_view to_string(ToolSyntax syntax) {
  for (const auto& [each, word] : text::chat::kWords)
    if (each == syntax) return word;
  return "";
}

ToolSyntax tool_syntax(std::string_view word) {
  std::string known;
  for (const auto& [syntax, each] : text::chat::kWords) {
    if (each == word) return syntax;
    known += (known.empty() ? "" : ", ") + std::string(each);
  }
  base::raise(ErrorKind::kUsage, "unknown tool syntax '{}'; known: {}", word, known);
}

}  // namespace lemma
