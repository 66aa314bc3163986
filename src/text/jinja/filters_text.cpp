// SPDX-License-Identifier: Apache-2.0
// Filters that make texts of texts.
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

#include "text/jinja/arguments.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/formatting.hpp"
#include "text/jinja/json.hpp"
#include "text/jinja/letter_case.hpp"
#include "text/jinja/operators.hpp"
#include "text/jinja/renderer.hpp"
#include "text/jinja/string_methods.hpp"

namespace lemma::text::jinja {
namespace {

/// str(value), which keeps safe text safe.
Text soft(Renderer& renderer, const Value& value) {
  Text text = to_text(renderer.budget(), value);
  renderer.budget().allocate(text.bytes.size());
  return text;
}

Text plain(Renderer& renderer, const Value& value) {
  Text text = soft(renderer, value);
  text.markup = false;
  return text;
}

template <Text (*kMap)(const Text&)>
Value map_case(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("filter", std::move(arguments), {});
  renderer.budget().charge(value.is(Kind::kString) ? value.bytes().size() / 8 : 0);
  return Value::string(kMap(soft(renderer, value)));
}

/// Words start behind blanks, hyphens and opening brackets.
Value title(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("title", std::move(arguments), {});
  const Text text = soft(renderer, value);
  TextBuilder out;
  bool first = true;
  std::size_t begin = 0;
  const auto flush = [&](std::size_t end) {
    if (begin < end) out.append(to_lower(slice(text, begin, end)));
    begin = end;
  };
  for (const CodePoint c : code_points(text.bytes)) {
    const bool splits = is_space(c.value) || c.value == '-' || c.value == '(' || c.value == '{' ||
                        c.value == '[' || c.value == '<';
    if (splits) {
      flush(c.begin);
      out.append(text, c.begin, c.end);
      begin = c.end;
      first = true;
    } else if (first) {
      out.append(to_upper(slice(text, c.begin, c.end)));
      begin = c.end;
      first = false;
    }
  }
  flush(text.bytes.size());
  return Value::string(out.take());
}

Value trim(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("trim", std::move(arguments), {"chars"});
  const Text text = soft(renderer, value);
  if (!bound.is_set(0)) return Value::string(strip(text, nullptr, Side::kBoth));
  const Text characters = bound.text(0);
  return Value::string(strip(text, &characters, Side::kBoth));
}

Value replace_filter(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("replace", std::move(arguments), {"old", "new", "count"}, 2);
  return Value::string(replace(renderer.budget(), plain(renderer, value), plain(renderer, bound[0]),
                               plain(renderer, bound[1]), bound.is_set(2) ? bound.integer(2) : -1));
}

Value center(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("center", std::move(arguments), {"width"});
  return Value::string(
      pad(renderer.budget(), soft(renderer, value), bound.integer(0, 80), " ", Side::kBoth));
}

Value safe(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("safe", std::move(arguments), {});
  Text text = soft(renderer, value);
  text.markup = true;
  return Value::string(std::move(text));
}

Value escape(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("escape", std::move(arguments), {});
  const Text text = soft(renderer, value);
  return Value::string(text.markup ? text : escape_html(renderer.budget(), text));
}

Value force_escape(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("forceescape", std::move(arguments), {});
  return Value::string(escape_html(renderer.budget(), plain(renderer, value)));
}

Value string(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("string", std::move(arguments), {});
  return value.is(Kind::kString) ? value : Value::string(soft(renderer, value));
}

Value format(Renderer& renderer, const Value& value, Arguments arguments) {
  if (!arguments.positional.empty() && !arguments.keywords.empty())
    base::raise(ErrorKind::kTemplate,
                "can't handle positional and keyword arguments at the same time");
  Value values = Value::tuple(std::move(arguments.positional));
  if (!arguments.keywords.empty()) {
    auto dict = std::make_shared<Dict>();
    for (auto& [key, item] : arguments.keywords) dict->set(Value::string(key), std::move(item));
    values = Value::dict(std::move(dict));
  }
  return Value::string(format_percent(renderer.budget(), soft(renderer, value), values));
}

std::vector<Text> lines_of(const Text& text) {
  std::vector<Text> lines;
  std::size_t begin = 0, skip = 0;
  for (const CodePoint c : code_points(text.bytes)) {
    if (c.begin < skip || !is_line_break(c.value)) continue;
    lines.push_back(slice(text, begin, c.begin));
    const bool pair = c.value == '\r' && c.end < text.bytes.size() && text.bytes[c.end] == '\n';
    begin = skip = pair ? c.end + 1 : c.end;
  }
  if (begin < text.bytes.size()) lines.push_back(slice(text, begin, text.bytes.size()));
  return lines;
}

Value indent(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("indent", std::move(arguments), {"width", "first", "blank"});
  require_defined(value);
  if (!value.is(Kind::kString))
    base::raise(ErrorKind::kTemplate, "unsupported operand type(s) for +=: '{}' and 'str'",
                type_name(value));
  Budget& budget = renderer.budget();
  Text step(" ");
  if (bound.has(0) && bound[0].is(Kind::kString)) {
    step = bound.text(0);
  } else {
    step = arithmetic(budget, Arithmetic::kMul, Value::string(" "),
                      Value::integer(bound.integer(0, 4)))
               .text();
  }
  if (value.text().markup && !step.markup) step.markup = true;
  const bool first = bound.truth(1), blank = bound.truth(2);
  // A newline at the end makes the last line count even where it is empty.
  TextBuilder whole;
  whole.append(value.text());
  whole.append("\n");
  TextBuilder out;
  bool is_first = true;
  for (const Text& line : lines_of(whole.take())) {
    if (!is_first) out.append("\n");
    if (is_first ? first : blank || !line.bytes.empty()) out.append(step);
    out.append(line);
    is_first = false;
    if (out.size() > budget.limits().output) budget.allocate(out.size());
  }
  budget.allocate(out.size());
  return Value::string(out.take(value.text().markup));
}

Value truncate(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("truncate", std::move(arguments), {"length", "killwords", "end", "leeway"});
  const std::int64_t limit = bound.integer(0, 255);
  const Text end = bound.has(2) ? bound.text(2) : Text("...");
  const std::int64_t leeway = bound.is_set(3) ? bound.integer(3) : 5;
  const auto end_size = static_cast<std::int64_t>(count_code_points(end.bytes));
  if (limit < end_size)
    base::raise(ErrorKind::kTemplate, "expected length >= {}, got {}", end_size, limit);
  if (leeway < 0) base::raise(ErrorKind::kTemplate, "expected leeway >= 0, got {}", leeway);
  const std::int64_t size = length(value);
  if (size <= limit || size - limit <= leeway) return value;
  if (!value.is(Kind::kString))
    base::raise(ErrorKind::kTemplate, "'{}' object has no attribute 'rsplit'", type_name(value));
  const Text& text = value.text();
  Text kept =
      slice(text, 0, byte_of_code_point(text.bytes, static_cast<std::size_t>(limit - end_size)));
  if (!bound.truth(1)) {
    const std::size_t blank = kept.bytes.rfind(' ');
    if (blank != std::string::npos) kept = slice(kept, 0, blank);
  }
  return Value::string(concatenate(renderer.budget(), kept, end));
}

/// What a regular expression's \\w matches: letters, numbers and the underscore.
bool is_word(char32_t c) {
  if (c == '_') return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

Value word_count(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("wordcount", std::move(arguments), {});
  std::int64_t count = 0;
  bool inside = false;
  const Text text = soft(renderer, value);
  for (const CodePoint c : code_points(text.bytes)) {
    const bool word = is_word(c.value);
    count += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer(count);
}

/// Percent-encodes all but letters, digits and "_.-~"; a slash stays outside a query.
void append_url(TextBuilder& out, const Text& text, bool query) {
  Marks marks(text);
  for (std::size_t i = 0; i < text.bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text.bytes[i]);
    const bool from_input = marks.from_input(i);
    const bool keeps = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= '0' && byte <= '9') || byte == '_' || byte == '.' || byte == '-' ||
                       byte == '~' || (byte == '/' && !query);
    if (keeps)
      out.append(std::string_view(&text.bytes[i], 1), from_input);
    else if (byte == ' ' && query)
      out.append("+", from_input);
    else
      out.append(fmt::format("%{:02X}", byte), from_input);
  }
}

Value url_encode(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("urlencode", std::move(arguments), {});
  TextBuilder out;
  if (value.is(Kind::kString) || !is_iterable(value)) {
    append_url(out, soft(renderer, value), false);
    return Value::string(out.take());
  }
  const Value pairs = value.is(Kind::kDict) ? (*find_filter("items"))(renderer, value, {}) : value;
  bool first = true;
  for (const Value& pair : to_items(renderer.budget(), pairs)) {
    const std::vector<Value> parts = to_items(renderer.budget(), pair);
    if (parts.size() != 2) base::raise(ErrorKind::kTemplate, "urlencode needs pairs");
    if (!first) out.append("&");
    first = false;
    append_url(out, soft(renderer, parts[0]), true);
    out.append("=");
    append_url(out, soft(renderer, parts[1]), true);
  }
  renderer.budget().allocate(out.size());
  return Value::string(out.take());
}

Value xml_attributes(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("xmlattr", std::move(arguments), {"autospace"});
  require_defined(value);
  if (!value.is(Kind::kDict))
    base::raise(ErrorKind::kTemplate, "'{}' object has no attribute 'items'", type_name(value));
  TextBuilder out;
  for (const auto& [key, item] : value.dict().entries) {
    if (item.is(Kind::kNone) || item.is(Kind::kUndefined)) continue;
    const Text name = soft(renderer, key);
    if (name.bytes.find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      base::raise(ErrorKind::kTemplate, "Invalid character in attribute name: {}",
                  repr(renderer.budget(), key).bytes);
    if (out.size() > 0 || bound.truth(0, true)) out.append(" ");
    out.append(escape(renderer, key, {}).text());
    out.append("=\"");
    out.append(escape(renderer, item, {}).text());
    out.append("\"");
  }
  renderer.budget().allocate(out.size());
  return Value::string(out.take());
}

Value to_json(Renderer& renderer, const Value& value, Arguments arguments) {
  const Bound bound("tojson", std::move(arguments),
                    {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.truth(0);
  if (bound.is_set(1)) {
    style.pretty = true;
    if (bound[1].is(Kind::kString)) {
      style.indent = bound.text(1).bytes;
    } else {
      const std::int64_t width = std::clamp<std::int64_t>(bound.integer(1), 0, 1 << 16);
      style.indent.assign(static_cast<std::size_t>(width), ' ');
    }
    style.item_separator = ",";
  }
  if (bound.is_set(2)) {
    const std::vector<Value> separators = to_items(renderer.budget(), bound[2]);
    if (separators.size() != 2 || !separators[0].is(Kind::kString) ||
        !separators[1].is(Kind::kString))
      base::raise(ErrorKind::kTemplate, "tojson(): separators are two strings");
    style.item_separator = separators[0].bytes();
    style.key_separator = separators[1].bytes();
  }
  style.sort_keys = bound.truth(3);
  return Value::string(write_json(renderer.budget(), value, style));
}

}  // namespace

const std::vector<NamedFilter>& text_filters() {
  static const std::vector<NamedFilter> all = {
      {"capitalize", map_case<capitalize>},
      {"center", center},
      {"e", escape},
      {"escape", escape},
      {"forceescape", force_escape},
      {"format", format},
      {"indent", indent},
      {"lower", map_case<to_lower>},
      {"replace", replace_filter},
      {"safe", safe},
      {"string", string},
      {"title", title},
      {"tojson", to_json},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", map_case<to_upper>},
      {"urlencode", url_encode},
      {"wordcount", word_count},
      {"xmlattr", xml_attributes},
  };
  return all;
}

}  // namespace lemma::text::jinja
