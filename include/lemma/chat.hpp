// SPDX-License-Identifier: Apache-2.0
// Chat: conversations become prompts by a model's own template, and what the model says becomes
// reasoning, content and tool calls. What a template supports is found by rendering it, never by
// its name; a template that refuses a conversation throws with its own words, and nothing is
// replaced by another template. Text from a conversation never becomes a control token: a prompt
// knows which of its bytes the template wrote. A ChatTemplate is immutable and thread-safe; a
// ChatParser belongs to one answer.
//
//   auto chat = lemma::ChatTemplate::open("model.gguf");
//   lemma::Prompt prompt = chat.render({.messages = {{.role = Role::kUser, .parts = {"Hi"}}}});
//   request.prompt = engine->tokenizer().encode(prompt);
//   lemma::ChatParser parser(chat.syntax(), {.in_reasoning = prompt.in_reasoning});
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lemma/error.hpp"

namespace lemma {

enum class Role : std::uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool };

/// A function that the model wants called.
struct ToolCall {
  std::string id;  ///< may be empty
  std::string name;
  std::string arguments;  ///< a JSON object
  bool operator==(const ToolCall&) const = default;
};

struct Message {
  Role role = Role::kUser;
  std::vector<std::string> parts;    ///< the content's text parts, in order
  std::string reasoning;             ///< of an assistant
  std::vector<ToolCall> tool_calls;  ///< of an assistant
  std::string tool_call_id, name;    ///< of a tool's result
};

struct Conversation {
  std::vector<Message> messages;
  std::string tools;             ///< a JSON array of {"type": "function", ...}; empty: none
  std::optional<bool> thinking;  ///< none: as the template has it
  std::string variables;         ///< a JSON object of further template variables; empty: none
  /// The last message, an assistant's, is not finished: the prompt ends inside it.
  bool continue_last = false;
};

/// Civil time, for templates that print the date.
struct ChatTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
};

struct PromptPiece {
  std::string text;
  bool from_template = false;  ///< the template's own words: control tokens are read here only
  bool operator==(const PromptPiece&) const = default;
};

struct Prompt {
  std::vector<PromptPiece> pieces;  ///< neighbours differ in their origin
  bool in_reasoning = false;        ///< the answer starts inside the reasoning
  std::string text() const;
};

/// How a model writes its tool calls.
enum class ToolSyntax : std::uint8_t {
  kNone,
  kTagged,    ///< <tool_call>: JSON, <function=...> or <arg_key>, whichever is inside
  kLlama,     ///< JSON as the whole answer, or behind <|python_tag|>
  kMistral,   ///< [TOOL_CALLS]
  kDeepSeek,  ///< V3, R1, V3.1
  kDsml,      ///< DeepSeek V3.2 and V4
  kHarmony,   ///< channels
  kKimi,
  kMiniMax,
  kGemma,
  kFunctionGemma,
  kToolCode,      ///< a call in Python, in a fenced block
  kGranite,       ///< <|tool_call|> and a JSON list
  kCommandR,      ///< <|START_ACTION|>
  kCommandRPlus,  ///< Action: and a fenced JSON list
  kGigaChat,      ///< one call, as a message of the role "function call"
};
std::string_view to_string(ToolSyntax syntax);
/// By the words that to_string() gives. Throws kUsage, with the list, for another.
ToolSyntax tool_syntax(std::string_view word);

struct ChatSyntax {
  ToolSyntax tools = ToolSyntax::kNone;
  std::string reasoning_begin, reasoning_end;  ///< both empty: no reasoning
};

/// What a template does with a conversation, found by trying it.
struct ChatCapabilities {
  bool system = false;          ///< prints a system message
  bool tools = false;           ///< prints tool definitions
  bool tool_calls = false;      ///< prints an assistant's tool calls
  bool parallel_calls = false;  ///< more than one in a message
  bool tool_results = false;
  bool reasoning = false;         ///< prints the reasoning of the last answer
  bool thinking_switch = false;   ///< `thinking` makes a difference
  bool text_content = false;      ///< content as one string
  bool part_content = false;      ///< content as a list of parts
  bool object_arguments = false;  ///< arguments of calls as objects (else as JSON text)
};

class ChatTemplate {
 public:
  /// Throws kTemplate, with line and column, for what is not a template.
  static ChatTemplate parse(std::string_view source, std::string bos = "", std::string eos = "");
  /// That of a model, or a .jinja file; with `name` one of the model's further templates. Throws
  /// kNotFound, with the names that there are, for a model without it.
  static ChatTemplate open(const std::filesystem::path& path, std::string_view name = {});

  /// The text for any variables, a JSON object; bos_token and eos_token are the model's unless they
  /// are given. Throws kTemplate.
  std::string render_json(std::string_view variables, std::optional<ChatTime> now = {}) const;
  /// The prompt for the next answer. Throws kTemplate where the template refuses the conversation,
  /// and kUsage for JSON that is none.
  Prompt render(const Conversation& conversation, std::optional<ChatTime> now = {}) const;

  const ChatCapabilities& capabilities() const noexcept;
  const ChatSyntax& syntax() const noexcept;
  std::string_view source() const noexcept;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

struct ChatEvent {
  enum class Kind : std::uint8_t { kReasoning, kContent, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;  ///< more of the reasoning or the content
  ToolCall call;     ///< kToolCall: one whole call
  bool operator==(const ChatEvent&) const = default;
};

struct ChatParserOptions {
  bool in_reasoning = false;  ///< the answer starts inside the reasoning
  std::string tools;          ///< the conversation's tools: types of arguments that are bare text
};

/// Takes an answer apart while it is written. Give it the text of all tokens, control tokens as
/// they are spelt. Whatever it does not understand is content. However the text is cut into pieces,
/// the same reasoning, content and calls come out; neighbouring events of text may be cut
/// differently. White space around reasoning and in front of tool calls is layout and left out.
class ChatParser {
 public:
  explicit ChatParser(ChatSyntax syntax, ChatParserOptions options = {});
  ChatParser(ChatParser&&) noexcept;
  ChatParser& operator=(ChatParser&&) noexcept;
  ~ChatParser();
  std::vector<ChatEvent> push(std::string_view text);
  /// The answer is over.
  std::vector<ChatEvent> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lemma
