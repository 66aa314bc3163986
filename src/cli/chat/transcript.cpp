// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/transcript.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/raise.hpp"
#include "base/utf8.hpp"

namespace lemma::cli::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<Role, std::string_view>, 5> kRoles = {{
    {Role::kSystem, "system"},
    {Role::kDeveloper, "developer"},
    {Role::kUser, "user"},
    {Role::kAssistant, "assistant"},
    {Role::kTool, "tool"},
}};

std::string_view name_of(Role role) {
  for (const auto& [each, name] : kRoles)
    if (each == role) return name;
  return "";
}

Json content_of(const Message& message) {
  if (message.parts.empty()) return "";
  if (message.parts.size() == 1) return base::repair_utf8(message.parts[0]);
  Json parts = Json::array();
  for (const std::string& part : message.parts)
    parts.push_back({{"type", "text"}, {"text", base::repair_utf8(part)}});
  return parts;
}

/// What went wrong with one message, with its place in front.
[[noreturn]] void refuse(std::size_t index, std::string_view what) {
  base::raise(ErrorKind::kBadFile, "message {}: {}", index + 1, what);
}

std::string text_at(const Json& object, const char* key, std::size_t index) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_string()) refuse(index, fmt::format("'{}' is no string", key));
  return found->get<std::string>();
}

Role role_of(const Json& object, std::size_t index) {
  const std::string word = text_at(object, "role", index);
  for (const auto& [role, name] : kRoles)
    if (name == word) return role;
  refuse(index, fmt::format("expected a role of system, developer, user, assistant or tool, "
                            "found '{}'",
                            word));
}

std::vector<std::string> parts_of(const Json& object, std::size_t index) {
  const auto found = object.find("content");
  if (found == object.end() || found->is_null()) return {};
  if (found->is_string()) {
    std::string text = found->get<std::string>();
    if (text.empty()) return {};
    return {std::move(text)};
  }
  if (!found->is_array()) refuse(index, "'content' is neither a string nor a list of parts");
  std::vector<std::string> parts;
  for (const Json& part : *found) {
    if (!part.is_object() || text_at(part, "type", index) != "text")
      refuse(index, "'content' has a part that is no text");
    parts.push_back(text_at(part, "text", index));
  }
  return parts;
}

ToolCall call_of(const Json& call, std::size_t index) {
  const auto function = call.is_object() ? call.find("function") : call.end();
  if (!call.is_object() || function == call.end() || !function->is_object())
    refuse(index, "a tool call without its 'function'");
  ToolCall result{text_at(call, "id", index), text_at(*function, "name", index), "{}"};
  const auto arguments = function->find("arguments");
  if (arguments == function->end()) return result;
  // A JSON object written as a string, or the object itself.
  result.arguments = arguments->is_string() ? arguments->get<std::string>() : arguments->dump();
  if (!Json::parse(result.arguments, nullptr, false).is_object())
    refuse(index, "the arguments of a tool call are no JSON object");
  return result;
}

}  // namespace

std::string to_json(const std::vector<Message>& messages) {
  Json list = Json::array();
  for (const Message& message : messages) {
    Json one = {{"role", name_of(message.role)}, {"content", content_of(message)}};
    if (!message.reasoning.empty()) one["reasoning_content"] = base::repair_utf8(message.reasoning);
    for (const ToolCall& call : message.tool_calls)
      one["tool_calls"].push_back(
          {{"id", call.id},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    if (!message.tool_call_id.empty()) one["tool_call_id"] = message.tool_call_id;
    if (!message.name.empty()) one["name"] = message.name;
    list.push_back(std::move(one));
  }
  return Json{{"messages", std::move(list)}}.dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

std::vector<Message> messages_from_json(std::string_view json) {
  const Json parsed = Json::parse(json.begin(), json.end(), nullptr, false);
  if (parsed.is_discarded()) base::raise(ErrorKind::kBadFile, "not valid JSON");
  const Json* list = &parsed;
  if (parsed.is_object() && parsed.contains("messages")) list = &parsed["messages"];
  if (!list->is_array())
    base::raise(ErrorKind::kBadFile, "expected {{\"messages\": [...]}} or an array of messages");
  std::vector<Message> messages;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& one = (*list)[i];
    if (!one.is_object()) refuse(i, "expected an object");
    Message message;
    message.role = role_of(one, i);
    message.parts = parts_of(one, i);
    message.reasoning = text_at(one, "reasoning_content", i);
    message.tool_call_id = text_at(one, "tool_call_id", i);
    message.name = text_at(one, "name", i);
    if (const auto calls = one.find("tool_calls"); calls != one.end() && calls->is_array())
      for (const Json& call : *calls) message.tool_calls.push_back(call_of(call, i));
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace lemma::cli::chat
