// SPDX-License-Identifier: Apache-2.0
#include "text/chat/capabilities.hpp"

#include <string>

#include "lemma/error.hpp"

namespace lemma::text::chat {
namespace {

// Words of letters only, so that no filter changes them, and unlike any that templates hold.
constexpr std::string_view kSystem = "Qzsystemqz", kUser = "Qzuserqz", kSecond = "Qzsecondqz",
                           kAnswer = "Qzanswerqz", kReasoning = "Qzreasonqz", kTool = "qzfirsttool",
                           kOther = "qzothertool", kKey = "qzkey", kValue = "Qzvalueqz",
                           kResult = "Qzresultqz";

class Probe {
 public:
  Probe(const jinja::Template& parsed, std::string_view bos, std::string_view eos)
      : template_(parsed), bos_(bos), eos_(eos) {}

  ChatCapabilities run() {
    ChatCapabilities found;
    found.text_content = holds(render({user(kUser)}, {}), kUser);
    const std::string parts = render({two_parts()}, {.only_parts = true});
    found.part_content = holds(parts, kUser) && holds(parts, kSecond) && !holds(parts, "'type'") &&
                         !holds(parts, "\"type\"");
    form_.only_parts = !found.text_content && found.part_content;
    found.system = holds(render({text(Role::kSystem, kSystem), user(kUser)}, form_), kSystem);
    found.tools = holds(render({user(kUser)}, form_, tools()), kTool);
    probe_calls(found);
    Message answer = text(Role::kAssistant, kAnswer);
    answer.reasoning = kReasoning;
    found.reasoning = holds(render({user(kUser), answer}, form_, "", false), kReasoning);
    const std::string on = thinking(true), off = thinking(false);
    found.thinking_switch = on != off && !on.empty() && !off.empty();
    return found;
  }

 private:
  static Message text(Role role, std::string_view content) {
    Message message;
    message.role = role;
    message.parts = {std::string(content)};
    return message;
  }
  static Message user(std::string_view content) { return text(Role::kUser, content); }
  static Message two_parts() {
    Message message = user(kUser);
    message.parts.emplace_back(kSecond);
    return message;
  }

  static std::string tools() {
    const auto tool = [](std::string_view name) {
      return R"({"type": "function", "function": {"name": ")" + std::string(name) +
             R"(", "description": "d", "parameters": {"type": "object", "properties": {")" +
             std::string(kKey) + R"(": {"type": "string", "description": "d"}}, "required": []}}})";
    };
    return "[" + tool(kTool) + ", " + tool(kOther) + "]";
  }

  static ToolCall call(std::string_view name, std::string_view id) {
    return {std::string(id), std::string(name),
            "{\"" + std::string(kKey) + "\": \"" + std::string(kValue) + "\"}"};
  }

  static bool holds(const std::string& text, std::string_view word) {
    return text.find(word) != std::string::npos;
  }

  /// Nothing where the template refuses.
  std::string render(std::vector<Message> messages, const Form& form, std::string tools = {},
                     bool prompt = true, std::optional<bool> thinking = {}) const {
    Conversation conversation;
    conversation.messages = std::move(messages);
    conversation.tools = std::move(tools);
    conversation.thinking = thinking;
    try {
      return template_.render(variables_of(conversation, form, bos_, eos_, prompt)).bytes;
    } catch (const Error&) {
      return {};
    }
  }

  std::string thinking(bool on) const { return render({user(kUser)}, form_, "", true, on); }

  void probe_calls(ChatCapabilities& found) {
    Message calls;
    calls.role = Role::kAssistant;
    calls.tool_calls = {call(kTool, "qzcall001")};
    Message result = text(Role::kTool, kResult);
    result.tool_call_id = "qzcall001";
    result.name = kTool;
    const auto with = [&](bool object, std::vector<Message> tail) {
      Form form = form_;
      form.object_arguments = object;
      tail.insert(tail.begin(), user(kUser));
      return render(std::move(tail), form, tools());
    };
    // With an object a template either writes JSON or its own tags; one that wants text fails, or
    // prints what Python prints for a dict.
    const std::string object = with(true, {calls, result}), plain = with(false, {calls, result});
    const std::string python = "'" + std::string(kKey) + "': '" + std::string(kValue);
    found.object_arguments = holds(object, kValue) && !holds(object, python);
    const std::string& chosen = found.object_arguments ? object : plain;
    found.tool_calls = holds(chosen, kValue);
    found.tool_results = holds(chosen, kResult);
    if (!found.tool_calls) found.object_arguments = true;
    calls.tool_calls.push_back(call(kOther, "qzcall002"));
    // The second name stands among the tools as well; twice is a call.
    const std::string both = with(found.object_arguments, {calls, result});
    const std::size_t second = both.find(kValue);
    found.parallel_calls =
        second != std::string::npos && both.find(kValue, second + 1) != std::string::npos;
  }

  const jinja::Template& template_;
  std::string_view bos_, eos_;
  Form form_;
};

}  // namespace

ChatCapabilities probe(const jinja::Template& parsed, std::string_view bos, std::string_view eos) {
  return Probe(parsed, bos, eos).run();
}

Form form_of(const ChatCapabilities& capabilities) {
  Form form;
  form.parts = capabilities.part_content;
  form.only_parts = capabilities.part_content && !capabilities.text_content;
  form.object_arguments = capabilities.object_arguments;
  return form;
}

}  // namespace lemma::text::chat
