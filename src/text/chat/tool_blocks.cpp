// SPDX-License-Identifier: Apache-2.0
// The syntaxes whose calls are JSON, and what all share.
#include "text/chat/tool_blocks.hpp"

#include <algorithm>
#include <array>

#include "base/raise.hpp"
#include "text/jinja/json.hpp"
#include "text/jinja/value.hpp"

namespace lemma::text::chat {
namespace {

using jinja::Kind;
using jinja::Value;

/// value[key], or null.
const Value* member(const Value* value, std::string_view key) {
  return value && value->is(Kind::kDict) ? value->dict().find(key) : nullptr;
}

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-.:/").find(c) != std::string_view::npos ||
         (static_cast<unsigned char>(c) & 0x80) != 0;
}

}  // namespace

ToolTypes::ToolTypes(std::string_view tools) {
  if (skip_blanks(tools, 0) == tools.size()) return;
  const Value list = jinja::read_json(tools);
  if (list.is(Kind::kNone)) return;
  if (!list.is(Kind::kList)) base::raise(ErrorKind::kUsage, "tools: expected a JSON array");
  for (const Value& tool : list.items()) {
    const Value* function = member(&tool, "function");
    if (!function) function = &tool;
    const Value* name = member(function, "name");
    const Value* properties = member(member(function, "parameters"), "properties");
    if (!name || !name->is(Kind::kString) || !properties || !properties->is(Kind::kDict)) continue;
    for (const auto& [parameter, schema] : properties->dict().entries) {
      const Value* type = member(&schema, "type");
      const bool string = type && type->is(Kind::kString) && type->bytes() == "string";
      types_[{std::string(name->bytes()), std::string(parameter.bytes())}] =
          string ? Type::kString : Type::kOther;
    }
  }
}

std::string ToolTypes::argument(std::string_view function, std::string_view parameter,
                                std::string_view value) const {
  const auto found = types_.find({std::string(function), std::string(parameter)});
  const bool string = found != types_.end() && found->second == Type::kString;
  if (!string && is_json(value)) {
    const std::size_t begin = skip_blanks(value, 0);
    return std::string(value.substr(begin, scan_json(value, 0, true).end - begin));
  }
  return quote_json(value);
}

bool Reader::word(std::string_view word) {
  const auto found = maybe(word);
  if (!found) return false;
  return *found || fail();
}

std::optional<bool> Reader::maybe(std::string_view word) {
  const std::string_view here = rest().substr(0, word.size());
  if (here == word) {
    at_ += word.size();
    return true;
  }
  if (!word.starts_with(here) || final_) return false;
  wait();
  return std::nullopt;
}

bool Reader::until(std::string_view close, std::string_view& text) {
  const std::size_t end = rest().find(close);
  if (end == std::string_view::npos) return wait();
  text = rest().substr(0, end);
  at_ += end + close.size();
  return true;
}

bool Reader::name(std::string_view& name) {
  std::size_t size = 0;
  const std::string_view here = rest();
  while (size < here.size() && size <= 256 && is_name_byte(here[size])) ++size;
  if (size == here.size() && size <= 256) return wait();
  if (size == 0 || size > 256) return fail();
  name = here.substr(0, size);
  at_ += size;
  return true;
}

bool Reader::json(std::string_view& value) {
  const std::size_t begin = skip_blanks(text_, at_);
  const ScanResult result = scan_json(text_, begin, final_);
  if (result.scan == Scan::kMore) return wait();
  if (result.scan == Scan::kMalformed) return fail();
  value = text_.substr(begin, result.end - begin);
  at_ = result.end;
  return true;
}

bool Reader::arguments(std::string& object) {
  std::string_view value;
  if (!json(value)) return false;
  object = value;
  return is_arguments(value) || fail();
}

bool Reader::more() {
  blanks();
  return at_end() ? wait() : true;
}

bool is_arguments(std::string_view json) {
  if (!is_json_object(json)) return false;
  try {
    jinja::read_json(json);
    return true;
  } catch (const Error&) {
    return false;  // nested too deep, or a number that nobody can hold
  }
}

std::optional<ToolCall> call_from_json(std::string_view object) {
  const auto members = json_members(object);
  if (!members) return std::nullopt;
  ToolCall call;
  bool has_name = false;
  call.arguments = "{}";
  for (const auto& [key, value] : *members) {
    if (key == "function" && value.starts_with('{')) return call_from_json(value);
    if (key == "name" || key == "tool_name" || key == "function") {
      const auto name = json_string(value);
      if (!name || name->empty()) return std::nullopt;
      call.name = *name;
      has_name = true;
    } else if (key == "id" || key == "tool_call_id") {
      call.id = json_string(value).value_or(std::string(value));
    } else if (key == "arguments" || key == "parameters") {
      // Some models write the object as a string.
      call.arguments =
          value.starts_with('"') ? json_string(value).value_or("") : std::string(value);
      if (!is_arguments(call.arguments)) return std::nullopt;
    }
  }
  if (!has_name) return std::nullopt;
  return call;
}

namespace {

/// A JSON object or an array of them as calls.
bool read_calls(Reader& reader, std::vector<ToolCall>& calls) {
  std::string_view value;
  if (!reader.json(value)) return false;
  const auto elements =
      value.starts_with('[') ? json_elements(value) : std::vector<std::string_view>{value};
  if (!elements) return reader.fail();
  for (const std::string_view element : *elements) {
    auto call = call_from_json(element);
    if (!call) return reader.fail();
    calls.push_back(*std::move(call));
  }
  return true;
}

/// `open` calls `close`; `close` may be empty.
ReadBlock json_block(std::string open, std::string close) {
  return [open = std::move(open), close = std::move(close)](std::string_view text, const ToolTypes&,
                                                            bool final) {
    Reader reader(text, final);
    std::vector<ToolCall> calls;
    if (!reader.word(open) || !read_calls(reader, calls)) return reader.result();
    if (!close.empty()) {
      reader.blanks();
      if (!reader.word(close)) return reader.result();
    }
    return reader.done(std::move(calls));
  };
}

/// An answer that is JSON from its start: {"name": ..., "parameters": ...}, with ; between several.
BlockResult read_bare_json(std::string_view text, const ToolTypes&, bool final) {
  Reader reader(text, final);
  std::vector<ToolCall> calls;
  for (;;) {
    std::string_view value;
    if (!reader.json(value)) return reader.result();
    const auto members = json_members(value);
    const bool has_arguments =
        members && std::any_of(members->begin(), members->end(), [](const auto& entry) {
          return entry.first == "parameters" || entry.first == "arguments";
        });
    auto call = has_arguments ? call_from_json(value) : std::nullopt;
    if (!call) return reader.fail(), reader.result();
    calls.push_back(*std::move(call));
    reader.blanks();
    const auto another = reader.maybe(";");
    if (!another) return reader.result();
    if (!*another) return reader.done(std::move(calls));
    if (!reader.more()) return reader.result();
  }
}

/// [TOOL_CALLS] and a JSON array, or a name and its arguments with [CALL_ID] and [ARGS] before
/// them.
BlockResult read_mistral(std::string_view text, const ToolTypes&, bool final) {
  Reader reader(text, final);
  if (!reader.word("[TOOL_CALLS]") || !reader.more()) return reader.result();
  std::vector<ToolCall> calls;
  if (reader.rest().starts_with('[')) {
    if (!read_calls(reader, calls)) return reader.result();
    return reader.done(std::move(calls));
  }
  ToolCall call;
  std::string_view name;
  if (!reader.name(name)) return reader.result();
  call.name = name;
  const auto has_id = reader.maybe("[CALL_ID]");
  if (!has_id) return reader.result();
  if (*has_id) {
    if (!reader.name(name)) return reader.result();
    call.id = name;
  }
  const auto has_mark = reader.maybe("[ARGS]");
  if (!has_mark || !reader.arguments(call.arguments)) return reader.result();
  return reader.done({std::move(call)});
}

/// functions.NAME:3 is both the id and, between the dot and the colon, the name.
BlockResult read_kimi(std::string_view text, const ToolTypes&, bool final) {
  Reader reader(text, final);
  if (!reader.word("<|tool_calls_section_begin|>")) return reader.result();
  std::vector<ToolCall> calls;
  for (;;) {
    reader.blanks();
    const auto ends = reader.maybe("<|tool_calls_section_end|>");
    if (!ends) return reader.result();
    if (*ends) return reader.done(std::move(calls));
    std::string_view id;
    ToolCall call;
    if (!reader.word("<|tool_call_begin|>") || !reader.until("<|tool_call_argument_begin|>", id))
      return reader.result();
    id = id.substr(skip_blanks(id, 0));
    id = id.substr(0, id.find_last_not_of(" \n") + 1);
    std::string_view name = id.starts_with("functions.") ? id.substr(10) : id;
    name = name.substr(0, name.rfind(':'));
    if (name.empty()) return reader.fail(), reader.result();
    call.id = id;
    call.name = name;
    if (!reader.arguments(call.arguments)) return reader.result();
    reader.blanks();
    if (!reader.word("<|tool_call_end|>")) return reader.result();
    calls.push_back(std::move(call));
  }
}

/// A call behind its opening: type<sep>name, a fenced block of JSON; or name<sep> and bare JSON.
bool read_deepseek_call(Reader& reader, ToolCall& call) {
  std::string_view first;
  if (!reader.until("<｜tool▁sep｜>", first) || !reader.more()) return false;
  if (reader.rest().starts_with('{')) {
    call.name = first;
    if (!reader.arguments(call.arguments)) return false;
  } else {
    std::string_view name;
    if (!reader.name(name)) return false;
    call.name = name;
    reader.blanks();
    if (!reader.word("```json") || !reader.arguments(call.arguments)) return false;
    reader.blanks();
    if (!reader.word("```")) return false;
  }
  reader.blanks();
  return (!call.name.empty() || reader.fail()) && reader.word("<｜tool▁call▁end｜>");
}

BlockResult read_deepseek(std::string_view text, const ToolTypes&, bool final) {
  Reader reader(text, final);
  if (!reader.word("<｜tool▁calls▁begin｜>")) return reader.result();
  std::vector<ToolCall> calls;
  for (;;) {
    reader.blanks();
    const auto ends = reader.maybe("<｜tool▁calls▁end｜>");
    if (!ends) return reader.result();
    if (*ends) return reader.done(std::move(calls));
    ToolCall call;
    if (!reader.word("<｜tool▁call▁begin｜>") || !read_deepseek_call(reader, call))
      return reader.result();
    calls.push_back(std::move(call));
  }
}

/// Action: and a fenced JSON list; the tool "directly_answer" stands for no call.
BlockResult read_action(std::string_view text, const ToolTypes&, bool final) {
  Reader reader(text, final);
  if (!reader.word("Action:")) return reader.result();
  reader.blanks();
  if (!reader.word("```json")) return reader.result();
  std::vector<ToolCall> calls;
  if (!read_calls(reader, calls)) return reader.result();
  reader.blanks();
  if (!reader.word("```")) return reader.result();
  std::erase_if(calls, [](const ToolCall& call) {
    return call.name == "directly_answer" || call.name == "directly-answer";
  });
  return reader.done(std::move(calls));
}

/// The JSON of a call behind its header. The end of the message may stand behind it.
BlockResult read_gigachat_call(Reader& reader) {
  reader.blanks();
  std::string_view json;
  if (!reader.json(json)) return reader.result();
  auto call = call_from_json(json);
  if (!call) return reader.fail(), reader.result();
  return reader.done({*std::move(call)});
}

/// The role that GigaChat 3 names in front of a call, or the token that GigaChat 3.1 has for it.
BlockResult read_gigachat(std::string_view text, const ToolTypes&, bool final) {
  Reader reader(text, final);
  const auto token = reader.maybe("<|function_call|>");
  if (!token) return reader.result();
  if (!*token && !reader.word("function call<|role_sep|>")) return reader.result();
  return read_gigachat_call(reader);
}

/// The end of a message, which is layout, or is part of the header of a call.
BlockResult read_gigachat_end(std::string_view text, const ToolTypes&, bool final) {
  Reader reader(text, final);
  if (!reader.word("<|message_sep|>")) return reader.result();
  reader.blanks();
  if (reader.at_end() && !final) return reader.wait(), reader.result();
  const std::size_t end = reader.at();
  const auto calls = reader.maybe("function call<|role_sep|>");
  if (!calls) return reader.result();
  if (*calls) return read_gigachat_call(reader);
  return {Scan::kDone, end, {}};
}

/// A marker that is layout and no content.
Block layout(std::string marker) {
  return {marker, [marker](std::string_view, const ToolTypes&, bool) {
            return BlockResult{Scan::kDone, marker.size(), {}};
          }};
}

}  // namespace

std::vector<Block> blocks_of(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kNone:
    case ToolSyntax::kHarmony:
      return {};
    case ToolSyntax::kTagged:
      return {{"<tool_call>", read_tagged},
              {"<function=", read_tagged},
              {"<tool_calls>", json_block("<tool_calls>", "</tool_calls>")}};
    case ToolSyntax::kLlama:
      return {{"<|python_tag|>", read_python_tag},
              {"{", read_bare_json, true},
              {"<function=", read_tagged},
              layout("<|eom_id|>")};
    case ToolSyntax::kMistral:
      return {{"[TOOL_CALLS]", read_mistral}};
    case ToolSyntax::kDeepSeek:
      return {{"<｜tool▁calls▁begin｜>", read_deepseek}};
    case ToolSyntax::kDsml:
      return {{"<｜DSML｜tool_calls>", read_dsml},
              {"<｜DSML｜function_calls>", read_dsml},
              {"<DSML｜tool_calls>", read_dsml},
              {"<tool_calls>", read_dsml}};
    case ToolSyntax::kKimi:
      return {{"<|tool_calls_section_begin|>", read_kimi}};
    case ToolSyntax::kMiniMax:
      return {{"<minimax:tool_call>", read_invokes}};
    case ToolSyntax::kGemma:
      return {{"<|tool_call>", read_gemma}};
    case ToolSyntax::kFunctionGemma:
      return {{"<start_function_call>", read_function_gemma}};
    case ToolSyntax::kToolCode:
      return {{"```tool_code", read_tool_code}};
    case ToolSyntax::kGranite:
      return {{"<|tool_call|>", json_block("<|tool_call|>", "")}, {"<tool_call>", read_tagged}};
    case ToolSyntax::kCommandR:
      return {{"<|START_ACTION|>", json_block("<|START_ACTION|>", "<|END_ACTION|>")},
              layout("<|START_RESPONSE|>"),
              layout("<|END_RESPONSE|>"),
              layout("<|START_TEXT|>"),
              layout("<|END_TEXT|>")};
    case ToolSyntax::kCommandRPlus:
      return {{"Action:", read_action}};
    case ToolSyntax::kGigaChat:
      return {{"<|message_sep|>", read_gigachat_end},
              {"<|function_call|>", read_gigachat},
              {"function call<|role_sep|>", read_gigachat, true}};
  }
  return {};
}

}  // namespace lemma::text::chat
