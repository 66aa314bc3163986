// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/json_value.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/raise.hpp"

namespace lemma::text::constraint {
namespace {

using nlohmann::json;

constexpr std::size_t kMostDepth = 200;
constexpr std::size_t kMostBytes = std::size_t{16} << 20;

/// Builds the tree from the parser's events; the values that are open form a stack.
class TreeBuilder final : public nlohmann::json_sax<json> {
 public:
  explicit TreeBuilder(JsonValue& root) : root_(root) {}

  bool null() override { return put({}); }
  bool boolean(bool value) override {
    JsonValue made;
    made.type = JsonValue::Type::kBoolean;
    made.flag = value;
    return put(std::move(made));
  }
  bool number_integer(number_integer_t value) override { return put_integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return put_integer(value); }
  bool number_float(number_float_t, const string_t& text) override {
    return put(made_of(JsonValue::Type::kNumber, text));
  }
  bool string(string_t& text) override {
    return put(made_of(JsonValue::Type::kString, std::move(text)));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(JsonValue::Type::kObject); }
  bool end_object() override {
    open_.pop_back();
    names_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return open(JsonValue::Type::kArray); }
  bool end_array() override { return end_object(); }
  bool key(string_t& name) override {
    if (!names_.back().insert(name).second)
      base::raise(ErrorKind::kUsage, "JSON schema: the key '{}' stands twice in one object", name);
    open_.back()->members.push_back({std::move(name), {}});
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    base::raise(ErrorKind::kUsage, "JSON schema: this is not JSON: {}", error.what());
  }

 private:
  static JsonValue made_of(JsonValue::Type type, std::string text) {
    JsonValue made;
    made.type = type;
    made.text = std::move(text);
    return made;
  }
  template <typename Integer>
  bool put_integer(Integer value) {
    return put(made_of(JsonValue::Type::kInteger, std::to_string(value)));
  }

  JsonValue& place() {
    if (open_.empty()) return root_;
    JsonValue& parent = *open_.back();
    if (parent.is_object()) return parent.members.back().value;
    return parent.items.emplace_back();
  }
  bool put(JsonValue value) {
    place() = std::move(value);
    return true;
  }
  bool open(JsonValue::Type type) {
    if (open_.size() >= kMostDepth)
      base::raise(ErrorKind::kUsage, "JSON schema: nested deeper than {}", kMostDepth);
    JsonValue& value = place();
    value.type = type;
    // Siblings are added only after this one is closed, so the pointer holds while it is used.
    open_.push_back(&value);
    names_.emplace_back();
    return true;
  }

  JsonValue& root_;
  std::vector<JsonValue*> open_;
  std::vector<std::set<std::string>> names_;  ///< of the open objects
};

void settle_places(JsonValue& value) {
  std::size_t index = 0;
  const auto settle = [&](JsonValue& child) {
    child.parent = &value;
    child.index = index++;
    settle_places(child);
  };
  for (JsonValue& item : value.items) settle(item);
  for (JsonMember& member : value.members) settle(member.value);
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const noexcept {
  for (const JsonMember& member : members) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

double JsonValue::number() const {
  return std::strtod(text.c_str(), nullptr);
}

std::unique_ptr<const JsonValue> parse_json(std::string_view text) {
  if (text.size() > kMostBytes)
    base::raise(ErrorKind::kUsage, "JSON schema: {} bytes, expected at most {}", text.size(),
                kMostBytes);
  auto root = std::make_unique<JsonValue>();
  TreeBuilder builder(*root);
  json::sax_parse(text, &builder);
  settle_places(*root);
  return root;
}

std::string pointer_to(const JsonValue& value) {
  if (value.parent == nullptr) return "#";
  const JsonValue& parent = *value.parent;
  std::string name;
  if (parent.is_array()) {
    name = std::to_string(value.index);
  } else {
    for (const char c : parent.members[value.index].name)
      name += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return pointer_to(parent) + "/" + name;
}

std::string quoted_json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
      case '\\':
        out += {'\\', c};
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

std::string plain_number(const JsonValue& value) {
  if (value.type == JsonValue::Type::kInteger) return value.text;
  const double number = value.number();
  if (number == std::floor(number) && std::fabs(number) < 1e15)
    return std::to_string(static_cast<std::int64_t>(number));
  return fmt::format("{}", number);
}

std::string compact_json(const JsonValue& value) {
  std::string out;
  switch (value.type) {
    case JsonValue::Type::kNull:
      return "null";
    case JsonValue::Type::kBoolean:
      return value.flag ? "true" : "false";
    case JsonValue::Type::kInteger:
    case JsonValue::Type::kNumber:
      return plain_number(value);
    case JsonValue::Type::kString:
      return quoted_json(value.text);
    case JsonValue::Type::kArray:
      for (const JsonValue& item : value.items)
        out += (out.empty() ? "[" : ",") + compact_json(item);
      return (out.empty() ? "[" : out) + "]";
    case JsonValue::Type::kObject:
      for (const JsonMember& member : value.members)
        out +=
            (out.empty() ? "{" : ",") + quoted_json(member.name) + ":" + compact_json(member.value);
      return (out.empty() ? "{" : out) + "}";
  }
  return out;
}

}  // namespace lemma::text::constraint
