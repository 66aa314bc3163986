// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/tools.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/raise.hpp"

namespace lemma::cli::chat {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> command_of(const Json& entry, const std::string& name) {
  const auto found = entry.find("command");
  if (found == entry.end())
    base::raise(ErrorKind::kBadFile,
                "tool '{}' lacks 'command', the program that carries it out, as a list of strings",
                name);
  std::vector<std::string> command;
  const bool is_list = found->is_array() && !found->empty();
  if (is_list)
    for (const Json& word : *found)
      if (word.is_string()) command.push_back(word.get<std::string>());
  if (!is_list || command.size() != found->size() || command[0].empty())
    base::raise(ErrorKind::kBadFile,
                "tool '{}': expected 'command' to be a list of strings, the program first", name);
  return command;
}

std::string name_of(const Json& entry, std::size_t index) {
  const auto function = entry.is_object() ? entry.find("function") : entry.end();
  if (entry.is_object() && function != entry.end() && function->is_object()) {
    const auto name = function->find("name");
    if (name != function->end() && name->is_string() && !name->get<std::string>().empty())
      return name->get<std::string>();
  }
  base::raise(ErrorKind::kBadFile,
              "tool {}: expected {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}",
              index + 1);
}

}  // namespace

Tools Tools::parse(std::string_view json) {
  Json list = Json::parse(json.begin(), json.end(), nullptr, false);
  if (list.is_discarded()) base::raise(ErrorKind::kBadFile, "not valid JSON");
  if (!list.is_array()) base::raise(ErrorKind::kBadFile, "expected a list of tools");
  Tools tools;
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::string name = name_of(list[i], i);
    if (tools.find(name)) base::raise(ErrorKind::kBadFile, "tool '{}' stands twice", name);
    std::vector<std::string> command = command_of(list[i], name);
    tools.tools_.push_back({std::move(name), std::move(command)});
    list[i].erase("command");
  }
  if (!list.empty()) tools.definitions_ = list.dump();
  return tools;
}

Tool* Tools::find(std::string_view name) noexcept {
  const auto found = std::find_if(tools_.begin(), tools_.end(),
                                  [&](const Tool& tool) { return tool.name == name; });
  return found == tools_.end() ? nullptr : &*found;
}

}  // namespace lemma::cli::chat
