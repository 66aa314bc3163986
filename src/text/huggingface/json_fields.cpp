// SPDX-License-Identifier: Apache-2.0
#include "text/huggingface/json_fields.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/raise.hpp"

namespace lemma::text::huggingface {

const Json& member(const Json& object, std::string_view name, std::string_view where) {
  static const Json null;
  if (!object.is_object()) {
    base::raise(ErrorKind::kBadFile, "tokenizer.json: {} is {}, expected an object", where,
                object.type_name());
  }
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

void wrong_type(const Json& value, std::string_view name, std::string_view where,
                std::string_view expected) {
  base::raise(ErrorKind::kBadFile, "tokenizer.json: {}: '{}' is {}, expected {}", where, name,
              value.type_name(), expected);
}

bool boolean_or(const Json& object, std::string_view name, std::string_view where, bool fallback) {
  const Json& value = member(object, name, where);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) wrong_type(value, name, where, "true or false");
  return value.get<bool>();
}

std::optional<std::string> optional_string(const Json& object, std::string_view name,
                                           std::string_view where) {
  const Json& value = member(object, name, where);
  if (value.is_null()) return std::nullopt;
  if (!value.is_string()) wrong_type(value, name, where, "a string");
  return value.get<std::string>();
}

std::string string_of(const Json& object, std::string_view name, std::string_view where) {
  std::optional<std::string> value = optional_string(object, name, where);
  if (!value) base::raise(ErrorKind::kBadFile, "tokenizer.json: {}: '{}' is missing", where, name);
  return *std::move(value);
}

std::int32_t number_of(const Json& object, std::string_view name, std::string_view where) {
  const Json& value = member(object, name, where);
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0 ||
      value.get<std::int64_t>() > 0x7fffffff) {
    wrong_type(value, name, where, "a whole number from 0 to 2147483647");
  }
  return value.get<std::int32_t>();
}

const Json& array_of(const Json& object, std::string_view name, std::string_view where) {
  static const Json none = Json::array();
  const Json& value = member(object, name, where);
  if (value.is_null()) return none;
  if (!value.is_array()) wrong_type(value, name, where, "an array");
  return value;
}

void unknown_type(std::string_view type, std::string_view where, std::string_view known) {
  base::raise(ErrorKind::kUnsupported,
              "tokenizer.json: {} of type '{}' is not supported; known: {}", where, type, known);
}

}  // namespace lemma::text::huggingface
