// SPDX-License-Identifier: Apache-2.0
// The syntaxes that write arguments as literals of their own: Gemma's call:NAME{key:value}, and
// calls in Python. Both become JSON.
#include "base/utf8.hpp"
#include "text/chat/tool_blocks.hpp"

namespace lemma::text::chat {
namespace {

constexpr int kMaxDepth = 64;  // of lists and objects inside each other

/// Values with a marker instead of quotes around strings, and bare keys.
class GemmaValues {
 public:
  GemmaValues(Reader& reader, std::string quote) : reader_(reader), quote_(std::move(quote)) {}

  bool object(std::string& out, int depth = 0) {
    if (depth > kMaxDepth) return reader_.fail();
    if (!reader_.word("{")) return false;
    ArgumentsBuilder members;
    for (bool first = true;; first = false) {
      if (!reader_.more()) return false;
      const auto ends = reader_.maybe("}");
      if (!ends) return false;
      if (*ends) break;
      if (!first && !reader_.word(",")) return false;
      reader_.blanks();
      std::string key, element;
      if (!read_key(key) || !value(element, depth + 1)) return false;
      members.add(key, element);
    }
    out = members.take();
    return true;
  }

 private:
  bool read_key(std::string& key) {
    const auto quoted = reader_.maybe(quote_);
    if (!quoted) return false;
    std::string_view text;
    if (*quoted ? !reader_.until(quote_, text) || !reader_.word(":") : !reader_.until(":", text))
      return false;
    key = text;
    return (!key.empty() && key.find_first_of("{}[]<>\n") == std::string::npos) || reader_.fail();
  }

  bool list(std::string& out, int depth) {
    out = "[";
    static_cast<void>(reader_.word("["));
    for (bool first = true;; first = false) {
      if (!reader_.more()) return false;
      const auto ends = reader_.maybe("]");
      if (!ends) return false;
      if (*ends) break;
      if (!first && !reader_.word(",")) return false;
      std::string element;
      if (!value(element, depth + 1)) return false;
      out += (first ? "" : ", ") + element;
    }
    out += "]";
    return true;
  }

  bool value(std::string& out, int depth) {
    if (depth > kMaxDepth) return reader_.fail();
    if (!reader_.more()) return false;
    const auto quoted = reader_.maybe(quote_);
    if (!quoted) return false;
    if (*quoted) {
      std::string_view text;
      if (!reader_.until(quote_, text)) return false;
      out = quote_json(text);
      return true;
    }
    if (reader_.rest().starts_with('{')) return object(out, depth);
    if (reader_.rest().starts_with('[')) return list(out, depth);
    std::string_view scalar;
    if (!reader_.json(scalar)) return false;
    out = scalar;
    return !scalar.starts_with('"') || reader_.fail();
  }

  Reader& reader_;
  std::string quote_;
};

BlockResult read_gemma_call(std::string_view text, bool final, std::string_view open,
                            const std::string& quote, std::string_view close) {
  Reader reader(text, final);
  ToolCall call;
  std::string_view name;
  if (!reader.word(open)) return reader.result();
  reader.blanks();
  if (!reader.word("call:") || !reader.name(name)) return reader.result();
  call.name = name;
  reader.blanks();
  if (!GemmaValues(reader, quote).object(call.arguments)) return reader.result();
  reader.blanks();
  if (!reader.word(close)) return reader.result();
  if (!is_arguments(call.arguments)) return reader.fail(), reader.result();
  return reader.done({std::move(call)});
}

/// Python's literals as JSON.
class PythonValues {
 public:
  explicit PythonValues(Reader& reader) : reader_(reader) {}

  /// key=value, ... up to the closing bracket.
  bool keywords(std::string& out) {
    ArgumentsBuilder members;
    for (bool first = true;; first = false) {
      if (!reader_.more()) return false;
      const auto ends = reader_.maybe(")");
      if (!ends) return false;
      if (*ends) break;
      if (!first && !reader_.word(",")) return false;
      reader_.blanks();
      std::string_view key;
      std::string element;
      if (!reader_.name(key)) return false;
      reader_.blanks();
      if (!reader_.word("=") || !value(element, 0)) return false;
      members.add(key, element);
    }
    out = members.take();
    return true;
  }

 private:
  bool value(std::string& out, int depth) {
    if (depth > kMaxDepth) return reader_.fail();
    if (!reader_.more()) return false;
    const char c = reader_.rest()[0];
    if (c == '"' || c == '\'') return string(out, c);
    if (c == '[') return sequence(out, depth, "[", "]");
    if (c == '{') return sequence(out, depth, "{", "}");
    for (const auto& [word, json] : {std::pair<std::string_view, std::string_view>{"True", "true"},
                                     {"False", "false"},
                                     {"None", "null"}}) {
      const auto found = reader_.maybe(word);
      if (!found) return false;
      if (!*found) continue;
      out = json;
      return true;
    }
    std::string_view scalar;
    if (!reader_.json(scalar)) return false;
    out = scalar;
    return true;
  }

  bool sequence(std::string& out, int depth, std::string_view open, std::string_view close) {
    static_cast<void>(reader_.word(open));
    out = open;
    for (bool first = true;; first = false) {
      if (!reader_.more()) return false;
      const auto ends = reader_.maybe(close);
      if (!ends) return false;
      if (*ends) break;
      if (!first && !reader_.word(",")) return false;
      std::string element;
      if (!value(element, depth + 1)) return false;
      out += (first ? "" : ", ") + element;
      if (open != "{") continue;
      reader_.blanks();
      std::string member;
      if (!element.starts_with('"')) return reader_.fail();
      if (!reader_.word(":") || !value(member, depth + 1)) return false;
      out += ": " + member;
    }
    out += close;
    return true;
  }

  bool string(std::string& out, char quote) {
    std::size_t end = 1;
    const std::string_view text = reader_.rest();
    std::string decoded;
    for (; end < text.size() && text[end] != quote; ++end) {
      if (text[end] == '\n') return reader_.fail();
      if (text[end] != '\\') {
        decoded += text[end];
        continue;
      }
      if (++end >= text.size()) break;
      constexpr std::string_view kEscapes = "nrt\\'\"", kMeaning = "\n\r\t\\'\"";
      const std::size_t known = kEscapes.find(text[end]);
      if (known == kEscapes.npos) return reader_.fail();
      decoded += kMeaning[known];
    }
    if (end >= text.size()) return reader_.wait();
    static_cast<void>(reader_.word(text.substr(0, end + 1)));
    out = quote_json(decoded);
    return true;
  }

  Reader& reader_;
};

/// NAME(key=value, ...)
bool read_python_call(Reader& reader, ToolCall& call) {
  std::string_view name;
  if (!reader.name(name)) return false;
  call.name = name;
  if (!reader.word("(") || !PythonValues(reader).keywords(call.arguments)) return false;
  return is_arguments(call.arguments) || reader.fail();
}

}  // namespace

BlockResult read_gemma(std::string_view text, const ToolTypes&, bool final) {
  return read_gemma_call(text, final, "<|tool_call>", "<|\"|>", "<tool_call|>");
}

BlockResult read_function_gemma(std::string_view text, const ToolTypes&, bool final) {
  return read_gemma_call(text, final, "<start_function_call>", "<escape>", "<end_function_call>");
}

BlockResult read_tool_code(std::string_view text, const ToolTypes&, bool final) {
  Reader reader(text, final);
  std::vector<ToolCall> calls;
  if (!reader.word("```tool_code")) return reader.result();
  for (;;) {
    reader.blanks();
    const auto ends = reader.maybe("```");
    if (!ends) return reader.result();
    if (*ends) break;
    ToolCall call;
    const auto prints = reader.maybe("print(");
    if (!prints || !read_python_call(reader, call)) return reader.result();
    if (*prints && !reader.word(")")) return reader.result();
    calls.push_back(std::move(call));
  }
  if (calls.empty()) return reader.fail(), reader.result();
  return reader.done(std::move(calls));
}

BlockResult read_python_tag(std::string_view text, const ToolTypes& types, bool final) {
  Reader reader(text, final);
  if (!reader.word("<|python_tag|>") || !reader.more()) return reader.result();
  if (reader.rest().starts_with('{')) {
    const std::size_t begin = reader.at();
    for (const Block& block : blocks_of(ToolSyntax::kLlama)) {
      if (block.open != "{") continue;
      BlockResult result = block.read(text.substr(begin), types, final);
      result.end += begin;
      return result;
    }
  }
  // brave_search.call(query="...")
  ToolCall call;
  if (!read_python_call(reader, call)) return reader.result();
  constexpr std::string_view kMethod = ".call";
  if (!call.name.ends_with(kMethod)) return reader.fail(), reader.result();
  call.name.resize(call.name.size() - kMethod.size());
  return reader.done({std::move(call)});
}

}  // namespace lemma::text::chat
