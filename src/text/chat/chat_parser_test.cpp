// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lemma/chat.hpp"
#include "text/chat/json_scan.hpp"

namespace lemma {
namespace {

struct Answer {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  bool operator==(const Answer&) const = default;
};

void PrintTo(const Answer& answer, std::ostream* out) {
  *out << "reasoning [" << answer.reasoning << "] content [" << answer.content << "]";
  for (const ToolCall& call : answer.calls)
    *out << " call " << call.name << "#" << call.id << " " << call.arguments;
}

void add(Answer& answer, const std::vector<ChatEvent>& events) {
  for (const ChatEvent& event : events) {
    if (event.kind == ChatEvent::Kind::kReasoning) answer.reasoning += event.text;
    if (event.kind == ChatEvent::Kind::kContent) answer.content += event.text;
    if (event.kind == ChatEvent::Kind::kToolCall) answer.calls.push_back(event.call);
  }
}

struct Case {
  std::string name;
  ToolSyntax tools = ToolSyntax::kNone;
  std::string begin, end;  ///< of the reasoning
  bool in_reasoning = false;
  std::string text;
  Answer expected;
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

constexpr const char* kTools = R"([{"type": "function", "function": {"name": "f", "parameters":
  {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}}}}])";

Answer parse(const Case& one, const std::vector<std::string_view>& pieces) {
  ChatParser parser({one.tools, one.begin, one.end}, {one.in_reasoning, kTools});
  Answer answer;
  for (const std::string_view piece : pieces) add(answer, parser.push(piece));
  add(answer, parser.finish());
  return answer;
}

const std::vector<Case>& cases() {
  using S = ToolSyntax;
  static const std::string think = "<think>", unthink = "</think>";
  static const std::vector<Case> all = {
      {"Plain", S::kNone, "", "", false, " Hello\n\n world \n", {"", " Hello\n\n world \n", {}}},
      {"OnlyBlanks", S::kTagged, think, unthink, false, " \n", {"", " \n", {}}},
      {"Reasoning",
       S::kNone,
       think,
       unthink,
       false,
       "<think>\n a b \n</think>\n\nHi <think>x</think>",
       {"a b", "Hi <think>x</think>", {}}},
      {"ReasoningOpenedByThePrompt",
       S::kNone,
       think,
       unthink,
       true,
       "a\n\nb\n</think>\n\nHi\n",
       {"a\n\nb", "Hi\n", {}}},
      {"ReasoningRepeatsItsMarker",
       S::kNone,
       think,
       unthink,
       true,
       "\n<think>\nab</think>Hi",
       {"ab", "Hi", {}}},
      {"ReasoningNeverEnds",
       S::kTagged,
       think,
       unthink,
       true,
       "a <tool_call> b\n</thin",
       {"a <tool_call> b\n</thin", "", {}}},
      {"ReasoningIsEmpty",
       S::kTagged,
       think,
       unthink,
       false,
       "<think>\n\n</think>\n\nHi",
       {"", "Hi", {}}},
      {"MarkerInContent",
       S::kNone,
       think,
       unthink,
       false,
       "No <think> here</think>",
       {"", "No <think> here</think>", {}}},
      {"Hermes",
       S::kTagged,
       think,
       unthink,
       false,
       "<think>\nhm\n</think>\n\nLet me see. \n<tool_call>\n{\"name\": \"f\", \"arguments\": "
       "{\"s\": \"a</tool_call>b\", \"n\": 1.0}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", "
       "\"arguments\": {}}\n</tool_call>",
       {"hm", "Let me see.", {{"", "f", R"({"s": "a</tool_call>b", "n": 1.0})"}, {"", "g", "{}"}}}},
      {"HarmonyRecipientWithoutAName",
       S::kHarmony,
       "",
       "",
       false,
       "<|channel|>commentary to=functions. f<|message|>{\"n\": 1}<|call|>",
       {"", "{\"n\": 1}", {}}},
      {"GigaChat3",
       S::kGigaChat,
       "",
       "",
       false,
       "Let me see.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": "
       "{\"s\": \"<|message_sep|>\"}}<|message_sep|>\n\n",
       {"", "Let me see.", {{"", "f", R"({"s": "<|message_sep|>"})"}}}},
      {"GigaChat3CallAlone",
       S::kGigaChat,
       "",
       "",
       false,
       "function call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}",
       {"", "", {{"", "f", R"({"n": 1})"}}}},
      {"GigaChat31",
       S::kGigaChat,
       "",
       "",
       false,
       "So:<|function_call|>{\"name\": \"f\", \"arguments\": {}}",
       {"", "So:", {{"", "f", "{}"}}}},
      {"GigaChatEndOfMessage",
       S::kGigaChat,
       "",
       "",
       false,
       "A function call is a call.<|message_sep|>\n\n",
       {"", "A function call is a call.", {}}},
      {"GigaChatMalformed",
       S::kGigaChat,
       "",
       "",
       false,
       "<|function_call|>{\"name\": 3}",
       {"", "<|function_call|>{\"name\": 3}", {}}},
      {"HermesWithoutEnd",
       S::kTagged,
       "",
       "",
       false,
       "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"n\\\": 2}\"}\n",
       {"", "", {{"", "f", R"({"n": 2})"}}}},
      {"HermesBroken",
       S::kTagged,
       "",
       "",
       false,
       "a <tool_call>\n{\"name\": \"f\", }</tool_call> b <tool_call>{\"name\": \"g\"}</tool_call> "
       "c",
       {"", "a <tool_call>\n{\"name\": \"f\", }</tool_call> bc", {{"", "g", "{}"}}}},
      {"TagAsText",
       S::kTagged,
       "",
       "",
       false,
       "The <tool_call> tag, and <function=f",
       {"", "The <tool_call> tag, and <function=f", {}}},
      {"QwenXml",
       S::kTagged,
       think,
       unthink,
       true,
       "x</think>\n\n<tool_call>\n<function=f>\n<parameter=s>\n5\n</"
       "parameter>\n<parameter=n>\n5\n</parameter>\n<parameter=o>\n{\"a\": "
       "[1]}\n</parameter>\n<parameter=t>\ntwo\nlines\n\n</parameter>\n</function>\n</tool_call>",
       {"x", "", {{"", "f", R"({"s": "5", "n": 5, "o": {"a": [1]}, "t": "two\nlines\n"})"}}}},
      {"QwenXmlUnwrapped",
       S::kTagged,
       "",
       "",
       false,
       "ok <function=f>\n</function>\n</tool_call>",
       {"", "ok", {{"", "f", "{}"}}}},
      {"Glm",
       S::kTagged,
       think,
       unthink,
       false,
       "<think></think>\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>7</arg_value>\n<arg_key>n</"
       "arg_key>\n<arg_value>7</arg_value>\n</tool_call>\n<tool_call>g</tool_call>",
       {"", "", {{"", "f", R"({"s": "7", "n": 7})"}, {"", "g", "{}"}}}},
      {"Llama",
       S::kLlama,
       "",
       "",
       false,
       "\n{\"name\": \"f\", \"parameters\": {\"n\": 1}}; {\"name\": \"g\", \"parameters\": {}}",
       {"", "", {{"", "f", R"({"n": 1})"}, {"", "g", "{}"}}}},
      {"LlamaPythonTag",
       S::kLlama,
       "",
       "",
       false,
       "<|python_tag|>brave_search.call(query=\"a \\\"b\\\"\", n=[1, True, None])",
       {"", "", {{"", "brave_search", R"({"query": "a \"b\"", "n": [1, true, null]})"}}}},
      {"LlamaPythonTagJson",
       S::kLlama,
       "",
       "",
       false,
       "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"n\": 1}}",
       {"", "", {{"", "f", R"({"n": 1})"}}}},
      {"LlamaOtherJson",
       S::kLlama,
       "",
       "",
       false,
       "{\"a\": {\"name\": 1}} and {\"name\": \"f\", \"parameters\": {}}",
       {"", "{\"a\": {\"name\": 1}} and {\"name\": \"f\", \"parameters\": {}}", {}}},
      {"LlamaCode",
       S::kLlama,
       "",
       "",
       false,
       "<|python_tag|>print(1)\nx = 2",
       {"", "<|python_tag|>print(1)\nx = 2", {}}},
      {"MistralList",
       S::kMistral,
       "",
       "",
       false,
       "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"n\": 1}, \"id\": \"abc123def\"}, "
       "{\"name\": \"g\", \"arguments\": {}}]",
       {"", "", {{"abc123def", "f", R"({"n": 1})"}, {"", "g", "{}"}}}},
      {"MistralNames",
       S::kMistral,
       "[THINK]",
       "[/THINK]",
       false,
       "[THINK]a[/THINK]ok[TOOL_CALLS]f[ARGS]{\"n\": "
       "1}[TOOL_CALLS]g[CALL_ID]x1[ARGS]{}[TOOL_CALLS]h{\"s\": \"}\"}",
       {"a", "ok", {{"", "f", R"({"n": 1})"}, {"x1", "g", "{}"}, {"", "h", R"({"s": "}"})"}}}},
      {"MistralBroken",
       S::kMistral,
       "",
       "",
       false,
       "[TOOL_CALLS] is a token",
       {"", "[TOOL_CALLS] is a token", {}}},
      {"DeepSeekV3",
       S::kDeepSeek,
       think,
       unthink,
       true,
       "r</"
       "think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"
       "\"n\": "
       "1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<"
       "｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"r", "", {{"", "f", R"({"n": 1})"}, {"", "g", "{}"}}}},
      {"DeepSeekV31",
       S::kDeepSeek,
       "",
       "",
       false,
       "so<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": "
       "1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"", "so", {{"", "f", R"({"n": 1})"}}}},
      {"Dsml",
       S::kDsml,
       think,
       unthink,
       true,
       "r</think>ok\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter "
       "name=\"s\" string=\"true\">5 & <b> "
       "&lt;/｜DSML｜parameter></｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" "
       "string=\"false\">[5]</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
       "name=\"g\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
       {"r",
        "ok",
        {{"", "f", R"({"s": "5 & <b> </｜DSML｜parameter>", "n": [5]})"}, {"", "g", "{}"}}}},
      {"DsmlFunctionCalls",
       S::kDsml,
       "",
       "",
       false,
       "<｜DSML｜function_calls>\n<｜DSML｜invoke "
       "name=\"f\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       {"", "", {{"", "f", "{}"}}}},
      {"DsmlLostBar",
       S::kDsml,
       "",
       "",
       false,
       "<DSML｜tool_calls><DSML｜invoke name=\"f\"><DSML｜parameter "
       "name=\"s\">v</DSML｜parameter></DSML｜invoke></DSML｜tool_calls>",
       {"", "", {{"", "f", R"({"s": "v"})"}}}},
      {"DsmlPlain",
       S::kDsml,
       "",
       "",
       false,
       "<tool_calls><invoke name=\"f\"></invoke></tool_calls>",
       {"", "", {{"", "f", "{}"}}}},
      {"DsmlBroken",
       S::kDsml,
       "",
       "",
       false,
       "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n",
       {"", "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n", {}}},
      {"Kimi",
       S::kKimi,
       think,
       unthink,
       false,
       "I "
       "look.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_"
       "begin|>{\"n\": "
       "1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_"
       "call_end|><|tool_calls_section_end|>",
       {"", "I look.", {{"functions.f:0", "f", R"({"n": 1})"}, {"functions.g:1", "g", "{}"}}}},
      {"MiniMax",
       S::kMiniMax,
       think,
       unthink,
       true,
       "r\n</think>\n\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
       "name=\"s\">5</parameter>\n<parameter "
       "name=\"n\">5</parameter>\n</invoke>\n</minimax:tool_call>",
       {"r", "", {{"", "f", R"({"s": "5", "n": 5})"}}}},
      {"Gemma",
       S::kGemma,
       "<|channel>thought",
       "<channel|>",
       false,
       "<|channel>thought\nhm\n<channel|><|tool_call>call:f{s:<|\"|>a, "
       "{b}<|\"|>,n:5,o:{k:[true,<|\"|>x<|\"|>]}}<tool_call|><|tool_call>call:g{}<tool_call|>",
       {"hm",
        "",
        {{"", "f", R"({"s": "a, {b}", "n": 5, "o": {"k": [true, "x"]}})"}, {"", "g", "{}"}}}},
      {"FunctionGemma",
       S::kFunctionGemma,
       "",
       "",
       false,
       "<start_function_call>call:f{s:<escape>v<escape>}<end_function_call>",
       {"", "", {{"", "f", R"({"s": "v"})"}}}},
      {"ToolCode",
       S::kToolCode,
       "",
       "",
       false,
       "Sure:\n```tool_code\nprint(f(s='it\\'s', n=-1.5))\ng()\n```",
       {"", "Sure:", {{"", "f", R"({"s": "it's", "n": -1.5})"}, {"", "g", "{}"}}}},
      {"ToolCodeWithOtherCode",
       S::kToolCode,
       "",
       "",
       false,
       "```tool_code\nx = 1\n```",
       {"", "```tool_code\nx = 1\n```", {}}},
      {"Granite",
       S::kGranite,
       "",
       "",
       false,
       "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 1}}, {\"name\": \"g\", "
       "\"arguments\": {}}]",
       {"", "", {{"", "f", R"({"n": 1})"}, {"", "g", "{}"}}}},
      {"GraniteThoughts",
       S::kGranite,
       "Here is my thought process:",
       "Here is my response:",
       false,
       "Here is my thought process:\n\na\n\nHere is my response:\n\nb",
       {"a", "b", {}}},
      {"CommandR",
       S::kCommandR,
       "<|START_THINKING|>",
       "<|END_THINKING|>",
       false,
       "<|START_THINKING|>plan<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
       "\"tool_name\": \"f\", \"parameters\": {\"n\": 1}}\n]<|END_ACTION|>",
       {"plan", "", {{"0", "f", R"({"n": 1})"}}}},
      {"CommandRResponse",
       S::kCommandR,
       "<|START_THINKING|>",
       "<|END_THINKING|>",
       false,
       "<|START_THINKING|>plan<|END_THINKING|><|START_RESPONSE|>Hi there<|END_RESPONSE|>",
       {"plan", "Hi there", {}}},
      {"CommandRPlus",
       S::kCommandRPlus,
       "",
       "",
       false,
       "Action: ```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {\"n\": "
       "1}\n    }\n]```",
       {"", "", {{"", "f", R"({"n": 1})"}}}},
      {"CommandRPlusAnswers",
       S::kCommandRPlus,
       "",
       "",
       false,
       "Action:```json\n[{\"tool_name\": \"directly_answer\", \"parameters\": {}}]```\nAction: "
       "none",
       {"", "Action: none", {}}},
      {"Harmony",
       S::kHarmony,
       "",
       "",
       false,
       "<|channel|>analysis<|message|>Need "
       "<b>.\n<|end|><|start|>assistant<|channel|>commentary<|message|>Looking.<|end|><|start|>"
       "assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"n\": "
       "1}<|call|>",
       {"Need <b>.\n", "Looking.", {{"", "f", R"({"n": 1})"}}}},
      {"HarmonyFinal",
       S::kHarmony,
       "",
       "",
       false,
       "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>Hi "
       "<|x|> there<|return|>",
       {"a", "Hi <|x|> there", {}}},
      {"HarmonyRecipientInRole",
       S::kHarmony,
       "",
       "",
       false,
       " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
       {"", "", {{"", "f", "{}"}}}},
      {"HarmonyInReasoning",
       S::kHarmony,
       "",
       "",
       true,
       "a<|end|><|start|>assistant<|channel|>final<|message|>b",
       {"a", "b", {}}},
      {"HarmonyBroken",
       S::kHarmony,
       "",
       "",
       false,
       "<|channel|>commentary to=functions.f<|message|>{\"n\": <|call|>",
       {"", "<|channel|>commentary to=functions.f<|message|>{\"n\": ", {}}},
      {"HarmonyBare", S::kHarmony, "", "", false, "Just text.", {"", "Just text.", {}}},
  };
  return all;
}

class ChatParserCase : public testing::TestWithParam<Case> {};

TEST_P(ChatParserCase, IsTakenApart) {
  EXPECT_EQ(parse(GetParam(), {GetParam().text}), GetParam().expected);
}

TEST_P(ChatParserCase, ComesOutTheSameHoweverItIsCut) {
  const Case& one = GetParam();
  const std::string_view text = one.text;
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    ASSERT_EQ(parse(one, {text.substr(0, cut), text.substr(cut)}), one.expected)
        << "cut at " << cut;
  for (const std::size_t width : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}}) {
    std::vector<std::string_view> pieces;
    for (std::size_t at = 0; at < text.size(); at += width)
      pieces.push_back(text.substr(at, width));
    ASSERT_EQ(parse(one, pieces), one.expected) << "pieces of " << width;
  }
}

/// An answer may stop anywhere: at its length, by its user. Every such one is taken apart alike.
TEST_P(ChatParserCase, EveryBeginningComesOutTheSameHoweverItIsCut) {
  for (std::size_t end = 0; end < GetParam().text.size(); ++end) {
    Case one = GetParam();
    one.text.resize(end);
    const std::string_view text = one.text;
    const Answer whole = parse(one, {text});
    std::vector<std::string_view> bytes;
    for (std::size_t at = 0; at < end; ++at) bytes.push_back(text.substr(at, 1));
    ASSERT_EQ(parse(one, bytes), whole) << "stopped at " << end;
    ASSERT_EQ(parse(one, {text.substr(0, end / 2), text.substr(end / 2)}), whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Syntaxes, ChatParserCase, testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

TEST(ChatParser, PassesContentOnWhileItComes) {
  ChatParser parser({ToolSyntax::kTagged, "<think>", "</think>"});
  const auto text_of = [](const std::vector<ChatEvent>& events) {
    std::string text;
    for (const ChatEvent& event : events) text += event.text;
    return text;
  };
  EXPECT_EQ(text_of(parser.push("Hello")), "Hello");
  EXPECT_EQ(text_of(parser.push(" wor")), " wor");
  EXPECT_EQ(text_of(parser.push("ld <")), "ld");
  EXPECT_EQ(text_of(parser.push("tool")), "");
  EXPECT_EQ(text_of(parser.push("box>")), " <toolbox>");
  EXPECT_EQ(text_of(parser.finish()), "");
}

TEST(ChatParser, NamesEverySyntax) {
  for (int i = 0; i <= static_cast<int>(ToolSyntax::kCommandRPlus); ++i) {
    const auto syntax = static_cast<ToolSyntax>(i);
    EXPECT_EQ(tool_syntax(to_string(syntax)), syntax);
  }
  EXPECT_THROW(tool_syntax("qwen"), Error);
}

TEST(ChatParser, RefusesToolsThatAreNone) {
  EXPECT_THROW(ChatParser({ToolSyntax::kTagged, "", ""}, {false, "{"}), Error);
  EXPECT_THROW(ChatParser({ToolSyntax::kTagged, "", ""}, {false, "{}"}), Error);
  EXPECT_NO_THROW(ChatParser({ToolSyntax::kTagged, "", ""}, {false, "[1, {\"function\": 2}]"}));
}

TEST(JsonScan, KnowsWhetherAValueMayStillCome) {
  using text::chat::Scan;
  using text::chat::scan_json;
  const std::string whole =
      R"( {"a": [1, -2.5e3, "x\"\u00e9", true, null, {}, []], "b": false} tail)";
  const std::size_t end = whole.find(" tail");
  for (std::size_t size = 0; size < end; ++size)
    EXPECT_EQ(scan_json(std::string_view(whole).substr(0, size), 0, false).scan, Scan::kMore)
        << size;
  EXPECT_EQ(scan_json(whole, 0, false).scan, Scan::kDone);
  EXPECT_EQ(scan_json(whole, 0, false).end, end);
  for (const char* bad : {"}", "[1 2]", "{\"a\" 1}", "{a: 1}", "[1,]x", "nul!", "01]", "\"\n\"",
                          "\"\\x\"", "-a", "1.x", "{,}"}) {
    const auto result = scan_json(bad, 0, false);
    EXPECT_TRUE(result.scan == Scan::kMalformed || result.end < std::string_view(bad).size())
        << bad;
  }
  EXPECT_EQ(scan_json(std::string(100'000, '['), 0, false).scan, Scan::kMore);
}

}  // namespace
}  // namespace lemma
