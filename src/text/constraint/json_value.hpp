// SPDX-License-Identifier: Apache-2.0
// JsonValue: a JSON document as a schema compiler needs it: members in their order, numbers as they
// were written, and every value knows its place, so that a message can name it. Hostile input:
// nesting is limited, a key that stands twice is refused. Immutable after parse_json().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lemma::text::constraint {

struct JsonMember;

struct JsonValue {
  enum class Type : std::uint8_t { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject };
  Type type = Type::kNull;
  bool flag = false;
  std::string text;  ///< of a string; of a number as JSON writes it
  std::vector<JsonValue> items;
  std::vector<JsonMember> members;
  const JsonValue* parent = nullptr;
  std::size_t index = 0;  ///< in the parent

  bool is_object() const noexcept { return type == Type::kObject; }
  bool is_array() const noexcept { return type == Type::kArray; }
  bool is_string() const noexcept { return type == Type::kString; }
  bool is_boolean() const noexcept { return type == Type::kBoolean; }
  bool is_number() const noexcept { return type == Type::kInteger || type == Type::kNumber; }
  /// The member called `name`, or null.
  const JsonValue* find(std::string_view name) const noexcept;
  double number() const;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

/// Throws kUsage, naming the place, for text that is not JSON or nests deeper than 200.
std::unique_ptr<const JsonValue> parse_json(std::string_view text);

/// The place as a JSON pointer in a fragment: "#/properties/name".
std::string pointer_to(const JsonValue& value);

/// Without blanks; of equal values the same text, whatever their numbers' spelling.
std::string compact_json(const JsonValue& value);

/// `text` as a JSON string, with the shortest escapes where one is needed and none elsewhere.
std::string quoted_json(std::string_view text);

/// A number in its shortest decimal form: 1.0 and 1e0 are 1.
std::string plain_number(const JsonValue& value);

}  // namespace lemma::text::constraint
