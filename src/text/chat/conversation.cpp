// SPDX-License-Identifier: Apache-2.0
#include "text/chat/conversation.hpp"

#include <memory>
#include <utility>

#include "base/raise.hpp"
#include "base/utf8.hpp"
#include "text/chat/json_scan.hpp"
#include "text/jinja/json.hpp"
#include "text/jinja/operators.hpp"

namespace lemma::text::chat {
namespace {

using jinja::Dict;
using jinja::Kind;
using jinja::Text;
using jinja::Value;

Value own(std::string_view text) {
  return Value::string(text);
}

Value input(std::string_view text) {
  if (!base::is_valid_utf8(text))
    base::raise(ErrorKind::kUsage, "a message is not valid UTF-8: '{}'", base::repair_utf8(text));
  return Value::string(Text::of(std::string(text), true));
}

class Object {
 public:
  void set(std::string_view key, Value value) { dict_->set(own(key), std::move(value)); }
  Value take() { return Value::dict(std::move(dict_)); }

 private:
  std::shared_ptr<Dict> dict_ = std::make_shared<Dict>();
};

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kDeveloper:
      return "developer";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
  }
  return "";
}

Value content_of(const Message& message, const Form& form) {
  if (form.only_parts || (form.parts && message.parts.size() > 1)) {
    std::vector<Value> parts;
    for (const std::string& part : message.parts) {
      Object object;
      object.set("type", own("text"));
      object.set("text", input(part));
      parts.push_back(object.take());
    }
    return Value::list(std::move(parts));
  }
  std::string text;
  for (const std::string& part : message.parts) text += part;
  return input(text);
}

Value call_of(const ToolCall& call, const Form& form) {
  const std::string arguments = call.arguments.empty() ? "{}" : call.arguments;
  const Value parsed = jinja::read_json(arguments);
  if (!parsed.is(Kind::kDict))
    base::raise(ErrorKind::kUsage, "the arguments of '{}' are not a JSON object: {}", call.name,
                arguments);
  Object function;
  function.set("name", input(call.name));
  function.set("arguments", form.object_arguments ? parsed : input(arguments));
  Object result;
  if (!call.id.empty()) result.set("id", input(call.id));
  result.set("type", own("function"));
  result.set("function", function.take());
  return result.take();
}

Value message_of(const Message& message, const Form& form) {
  Object object;
  object.set("role", own(name_of(message.role)));
  object.set("content", content_of(message, form));
  if (!message.reasoning.empty()) {
    // The two names that templates read it by.
    object.set("reasoning_content", input(message.reasoning));
    object.set("thinking", input(message.reasoning));
  }
  if (!message.tool_calls.empty()) {
    std::vector<Value> calls;
    for (const ToolCall& call : message.tool_calls) calls.push_back(call_of(call, form));
    object.set("tool_calls", Value::list(std::move(calls)));
  }
  if (!message.tool_call_id.empty()) object.set("tool_call_id", input(message.tool_call_id));
  if (!message.name.empty()) object.set("name", input(message.name));
  return object.take();
}

Value tools_of(std::string_view json) {
  if (skip_blanks(json, 0) == json.size()) return {};
  Value tools = jinja::read_json(json);
  if (!tools.is(Kind::kList) && !tools.is(Kind::kNone))
    base::raise(ErrorKind::kUsage, "tools: expected a JSON array");
  // An empty list and none are the same to a conversation; templates ask for none.
  return tools.is(Kind::kList) && tools.items().empty() ? Value() : tools;
}

}  // namespace

jinja::Value variables_of(const Conversation& conversation, const Form& form, std::string_view bos,
                          std::string_view eos, bool add_generation_prompt) {
  auto dict = std::make_shared<Dict>();
  const auto set = [&](std::string_view key, Value value) {
    dict->set(own(key), std::move(value));
  };
  std::vector<Value> messages;
  for (const Message& message : conversation.messages)
    messages.push_back(message_of(message, form));
  set("messages", Value::list(std::move(messages)));
  set("tools", tools_of(conversation.tools));
  set("documents", Value());
  set("add_generation_prompt", Value::boolean(add_generation_prompt));
  set("bos_token", own(bos));
  set("eos_token", own(eos));
  if (conversation.thinking) {
    set("enable_thinking", Value::boolean(*conversation.thinking));
    set("thinking", Value::boolean(*conversation.thinking));
  }
  if (skip_blanks(conversation.variables, 0) < conversation.variables.size()) {
    const Value more = jinja::read_json(conversation.variables);
    if (!more.is(Kind::kDict)) base::raise(ErrorKind::kUsage, "variables: expected a JSON object");
    for (const auto& [key, value] : more.dict().entries) dict->set(key, value);
  }
  return Value::dict(std::move(dict));
}

jinja::Value with_tokens(const jinja::Value& given, std::string_view bos, std::string_view eos) {
  if (!given.is(Kind::kDict))
    base::raise(ErrorKind::kUsage, "the variables of a template are a JSON object, not a {}",
                jinja::type_name(given));
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : given.dict().entries) dict->set(key, value);
  if (!dict->find("bos_token")) dict->set(own("bos_token"), own(bos));
  if (!dict->find("eos_token")) dict->set(own("eos_token"), own(eos));
  return Value::dict(std::move(dict));
}

}  // namespace lemma::text::chat
