// SPDX-License-Identifier: Apache-2.0
// The syntaxes that write each argument between tags of its own.
#include "text/chat/tool_blocks.hpp"

namespace lemma::text::chat {
namespace {

/// A value on lines of its own: one line break at each end is layout.
std::string_view without_line_breaks(std::string_view value) {
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  return value;
}

/// name>, as the rest of an opening tag.
bool read_tag_name(Reader& reader, std::string_view& name) {
  if (!reader.until(">", name)) return false;
  const bool plain =
      !name.empty() && name.size() <= 256 && name.find_first_of("<\n\"") == std::string_view::npos;
  return plain || reader.fail();
}

/// <function=NAME> <parameter=KEY> value </parameter> ... </function>, or with all of the arguments
/// as one JSON object.
bool read_function(Reader& reader, const ToolTypes& types, ToolCall& call) {
  std::string_view name;
  if (!reader.word("<function=") || !read_tag_name(reader, name)) return false;
  call.name = name;
  if (!reader.more()) return false;
  if (reader.rest().starts_with('{'))
    return reader.arguments(call.arguments) && reader.word("</function>");
  ArgumentsBuilder arguments;
  for (;;) {
    reader.blanks();
    const auto ends = reader.maybe("</function>");
    if (!ends) return false;
    if (*ends) break;
    std::string_view key, value;
    if (!reader.word("<parameter=") || !read_tag_name(reader, key) ||
        !reader.until("</parameter>", value))
      return false;
    arguments.add(key, types.argument(call.name, key, without_line_breaks(value)));
  }
  call.arguments = arguments.take();
  return is_arguments(call.arguments) || reader.fail();
}

/// NAME <arg_key>KEY</arg_key> <arg_value>value</arg_value> ...
bool read_arg_keys(Reader& reader, const ToolTypes& types, ToolCall& call) {
  std::string_view name;
  if (!reader.name(name)) return false;
  call.name = name;
  ArgumentsBuilder arguments;
  for (;;) {
    reader.blanks();
    const auto another = reader.maybe("<arg_key>");
    if (!another) return false;
    if (!*another) break;
    std::string_view key, value;
    if (!reader.until("</arg_key>", key)) return false;
    reader.blanks();
    if (!reader.word("<arg_value>") || !reader.until("</arg_value>", value)) return false;
    arguments.add(key, types.argument(call.name, key, value));
  }
  call.arguments = arguments.take();
  return is_arguments(call.arguments) || reader.fail();
}

/// The JSON of a call, or of a list of them.
bool read_json_calls(Reader& reader, std::vector<ToolCall>& calls) {
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

/// attribute="value", with the five entities of markup in it.
std::string without_entities(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    bool replaced = false;
    for (const auto& [entity, character] : {std::pair<std::string_view, char>{"&lt;", '<'},
                                            {"&gt;", '>'},
                                            {"&quot;", '"'},
                                            {"&amp;", '&'}}) {
      if (!rest.starts_with(entity)) continue;
      out += character;
      at += entity.size();
      replaced = true;
      break;
    }
    if (!replaced) out += text[at++];
  }
  return out;
}

/// What a syntax of <invoke> and <parameter> writes into its tags.
struct InvokeStyle {
  std::string prefix;  ///< in front of the tags' names
  bool typed = false;  ///< parameters say string="true" or "false"
};

bool read_parameter(Reader& reader, const ToolTypes& types, const InvokeStyle& style,
                    const ToolCall& call, ArgumentsBuilder& arguments) {
  std::string_view key, attributes, value;
  if (!reader.word("<" + style.prefix + "parameter name=\"") || !reader.until("\"", key) ||
      !reader.until(">", attributes))
    return false;
  const std::string close = "</" + style.prefix + "parameter>";
  if (!reader.until(close, value)) return false;
  const std::string name = without_entities(key);
  if (!style.typed) {
    arguments.add(name, types.argument(call.name, name, without_line_breaks(value)));
    return true;
  }
  if (attributes.find("string=\"false\"") != std::string_view::npos && is_json(value)) {
    arguments.add(name, value);
    return true;
  }
  // Only a closing tag inside the value is written with an entity.
  std::string text(value);
  const std::string escaped = "&lt;" + close.substr(1);
  for (std::size_t at = 0; (at = text.find(escaped, at)) != std::string::npos; at += close.size())
    text.replace(at, escaped.size(), close);
  arguments.add(name, quote_json(text));
  return true;
}

/// <invoke name="NAME"> parameters </invoke>, up to `close`.
BlockResult read_invoke_list(Reader& reader, const ToolTypes& types, const InvokeStyle& style,
                             const std::string& close) {
  std::vector<ToolCall> calls;
  for (;;) {
    reader.blanks();
    const auto ends = reader.maybe(close);
    if (!ends) return reader.result();
    if (*ends) return reader.done(std::move(calls));
    ToolCall call;
    std::string_view name, attributes;
    if (!reader.word("<" + style.prefix + "invoke name=\"") || !reader.until("\"", name) ||
        !reader.until(">", attributes))
      return reader.result();
    call.name = without_entities(name);
    ArgumentsBuilder arguments;
    for (;;) {
      reader.blanks();
      const auto closes = reader.maybe("</" + style.prefix + "invoke>");
      if (!closes) return reader.result();
      if (*closes) break;
      if (!read_parameter(reader, types, style, call, arguments)) return reader.result();
    }
    call.arguments = arguments.take();
    if (call.name.empty() || !is_arguments(call.arguments)) return reader.fail(), reader.result();
    calls.push_back(std::move(call));
  }
}

}  // namespace

BlockResult read_tagged(std::string_view text, const ToolTypes& types, bool final) {
  Reader reader(text, final);
  std::vector<ToolCall> calls(1);
  const auto wrapped = reader.maybe("<tool_call>");
  if (!wrapped || !reader.more()) return reader.result();
  bool read = false;
  if (reader.rest().starts_with('{') || reader.rest().starts_with('[')) {
    calls.clear();
    read = read_json_calls(reader, calls);
  } else if (reader.rest().starts_with('<')) {
    read = read_function(reader, types, calls[0]);
  } else {
    read = read_arg_keys(reader, types, calls[0]);
  }
  if (!read) return reader.result();
  const std::size_t end = reader.at();
  reader.blanks();
  const auto closed = reader.maybe("</tool_call>");
  if (!closed) return reader.result();
  // Models leave the closing tag away at the end of an answer, and where there was none to open.
  if (!*closed && *wrapped && !reader.at_end()) return reader.fail(), reader.result();
  BlockResult result = reader.done(std::move(calls));
  if (!*closed) result.end = end;
  return result;
}

BlockResult read_invokes(std::string_view text, const ToolTypes& types, bool final) {
  Reader reader(text, final);
  if (!reader.word("<minimax:tool_call>")) return reader.result();
  return read_invoke_list(reader, types, {}, "</minimax:tool_call>");
}

BlockResult read_dsml(std::string_view text, const ToolTypes& types, bool final) {
  Reader reader(text, final);
  const std::size_t close = text.find('>');
  const std::string tag(text.substr(1, close - 1));
  const std::size_t bar = tag.rfind("｜");
  const std::string prefix = bar == std::string::npos ? "" : tag.substr(0, bar + 3);
  static_cast<void>(reader.word("<" + tag + ">"));
  return read_invoke_list(reader, types, {prefix, true}, "</" + tag + ">");
}

}  // namespace lemma::text::chat
