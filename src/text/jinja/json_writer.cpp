// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/json.hpp"
#include "text/jinja/operators.hpp"

namespace lemma::text::jinja {
namespace {

class Writer {
 public:
  Writer(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}

  Text run(const Value& value) {
    write(value);
    budget_.allocate(out_.size());
    return out_.take();
  }

 private:
  static std::string number(const Value& value) {
    if (value.is_integral()) return fmt::format("{}", value.as_int());
    const double real = value.as_double();
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real < 0 ? "-Infinity" : "Infinity";
    return float_repr(real);
  }

  void write(const Value& value) {
    budget_.charge(1);
    if (out_.size() > budget_.limits().output) budget_.allocate(out_.size());
    switch (value.kind()) {
      case Kind::kNone:
        out_.append("null");
        return;
      case Kind::kBool:
        out_.append(value.as_bool() ? "true" : "false");
        return;
      case Kind::kInt:
      case Kind::kFloat:
        out_.append(number(value));
        return;
      case Kind::kString:
        write_string(value.text());
        return;
      case Kind::kList:
      case Kind::kTuple:
        write_list(value.items());
        return;
      case Kind::kDict:
        write_dict(value.dict());
        return;
      default:
        base::raise(ErrorKind::kTemplate, "Object of type {} is not JSON serializable",
                    type_name(value));
    }
  }

  void new_line() {
    if (!style_.pretty) return;
    out_.append("\n");
    for (std::uint32_t i = 0; i < level_; ++i) out_.append(style_.indent);
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) return out_.append("[]");
    out_.append("[");
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line();
      write(items[i]);
    }
    --level_;
    new_line();
    out_.append("]");
  }

  void write_dict(const Dict& dict) {
    if (dict.entries.empty()) return out_.append("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return ordered(budget_, Order::kLess, a->first, b->first);
      });
    out_.append("{");
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line();
      write_key(entries[i]->first);
      out_.append(style_.key_separator);
      write(entries[i]->second);
    }
    --level_;
    new_line();
    out_.append("}");
  }

  void write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return write_string(key.text());
      case Kind::kNone:
        return out_.append("\"null\"");
      case Kind::kBool:
        return out_.append(key.as_bool() ? "\"true\"" : "\"false\"");
      case Kind::kInt:
      case Kind::kFloat:
        return out_.append(fmt::format("\"{}\"", number(key)));
      default:
        base::raise(ErrorKind::kTemplate, "keys must be str, int, float, bool or None, not {}",
                    type_name(key));
    }
  }

  void write_string(const Text& text) {
    out_.append("\"");
    Marks marks(text);
    for (const CodePoint c : code_points(text.bytes)) {
      const bool from_input = marks.from_input(c.begin);
      const std::string escape = escaped(c.value);
      if (escape.empty())
        out_.append(c.value, from_input);
      else
        out_.append(escape, from_input);
    }
    out_.append("\"");
  }

  std::string escaped(char32_t c) const {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      default:
        break;
    }
    const auto number = static_cast<std::uint32_t>(c);
    if (c < 0x20) return fmt::format("\\u{:04x}", number);
    if (!style_.ensure_ascii || c < 0x7f) return {};
    if (c < 0x10000) return fmt::format("\\u{:04x}", number);
    const std::uint32_t rest = number - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
  }

  Budget& budget_;
  const JsonStyle& style_;
  TextBuilder out_;
  std::uint32_t level_ = 0;
};

}  // namespace

Text write_json(Budget& budget, const Value& value, const JsonStyle& style) {
  return Writer(budget, style).run(value);
}

}  // namespace lemma::text::jinja
