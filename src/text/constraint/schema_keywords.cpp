// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/schema_keywords.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/raise.hpp"

namespace lemma::text::constraint {
namespace {

using Type = JsonValue::Type;

enum class Wants : std::uint8_t {
  kAnything,
  kBoolean,
  kCount,
  kNumber,
  kString,
  kSchema,
  kSchemas,    ///< a list of schemas, not empty
  kSchemaMap,  ///< an object of schemas
  kNames,      ///< a list of strings
  kList,       ///< a list, not empty
  kTypeOrTypes,
};

struct Keyword {
  std::string_view name;
  Wants wants;
  Types types = 0;  ///< what it speaks of
};

constexpr auto kKeywords = std::to_array<Keyword>({
    {"type", Wants::kTypeOrTypes},
    {"nullable", Wants::kBoolean},
    {"enum", Wants::kList},
    {"const", Wants::kAnything},
    {"anyOf", Wants::kSchemas},
    {"oneOf", Wants::kSchemas},
    {"allOf", Wants::kSchemas},
    {"$ref", Wants::kString},
    {"$defs", Wants::kSchemaMap},
    {"definitions", Wants::kSchemaMap},
    {"$anchor", Wants::kString},
    {"properties", Wants::kSchemaMap, kObjectType},
    {"patternProperties", Wants::kSchemaMap, kObjectType},
    {"additionalProperties", Wants::kSchema, kObjectType},
    {"required", Wants::kNames, kObjectType},
    {"minProperties", Wants::kCount, kObjectType},
    {"maxProperties", Wants::kCount, kObjectType},
    {"items", Wants::kSchema, kArrayType},
    {"prefixItems", Wants::kSchemas, kArrayType},
    {"minItems", Wants::kCount, kArrayType},
    {"maxItems", Wants::kCount, kArrayType},
    {"uniqueItems", Wants::kBoolean, kArrayType},
    {"minLength", Wants::kCount, kStringType},
    {"maxLength", Wants::kCount, kStringType},
    {"pattern", Wants::kString, kStringType},
    {"format", Wants::kString},
    {"minimum", Wants::kNumber, kNumberType},
    {"maximum", Wants::kNumber, kNumberType},
    {"exclusiveMinimum", Wants::kNumber, kNumberType},
    {"exclusiveMaximum", Wants::kNumber, kNumberType},
    {"multipleOf", Wants::kNumber, kNumberType},
    {"$schema", Wants::kString},
    {"$id", Wants::kString},
    {"$comment", Wants::kString},
    {"title", Wants::kString},
    {"description", Wants::kString},
    {"default", Wants::kAnything},
    {"examples", Wants::kAnything},
    {"example", Wants::kAnything},
    {"deprecated", Wants::kBoolean},
    {"readOnly", Wants::kBoolean},
    {"writeOnly", Wants::kBoolean},
    {"contentEncoding", Wants::kString},
    {"contentMediaType", Wants::kString},
    {"contentSchema", Wants::kAnything},
});

constexpr auto kTypeNames =
    std::to_array<std::pair<std::string_view, Types>>({{"null", kNullType},
                                                       {"boolean", kBooleanType},
                                                       {"integer", kIntegerType},
                                                       {"number", kNumberType | kIntegerType},
                                                       {"string", kStringType},
                                                       {"array", kArrayType},
                                                       {"object", kObjectType}});

bool is_schema(const JsonValue& value) {
  return value.is_object() || value.is_boolean();
}

Types types_of_name(const JsonValue& value) {
  for (const auto& [name, types] : kTypeNames) {
    if (value.is_string() && value.text == name) return types;
  }
  refuse(value, "expected a type's name: null, boolean, integer, number, string, array or object");
}

void check_list(const JsonValue& value, bool (*fits)(const JsonValue&), std::string_view what) {
  if (!value.is_array()) refuse(value, std::string("expected ").append(what));
  for (const JsonValue& item : value.items) {
    if (!fits(item)) refuse(item, std::string("expected ").append(what));
  }
}

void check_value(const JsonValue& value, Wants wants) {
  const auto require = [&](bool fits, std::string_view what) {
    if (!fits) refuse(value, std::string("expected ").append(what));
  };
  switch (wants) {
    case Wants::kAnything:
      return;
    case Wants::kBoolean:
      return require(value.is_boolean(), "true or false");
    case Wants::kCount:
      return require(
          value.is_number() && value.number() >= 0 && value.number() == std::floor(value.number()),
          "a whole number from 0");
    case Wants::kNumber:
      return require(value.is_number(), "a number");
    case Wants::kString:
      return require(value.is_string(), "a string");
    case Wants::kSchema:
      return require(is_schema(value), "a schema: an object, true or false");
    case Wants::kSchemas:
      require(!value.items.empty(), "a list of schemas that is not empty");
      return check_list(value, is_schema, "a schema: an object, true or false");
    case Wants::kSchemaMap:
      require(value.is_object(), "an object of schemas");
      for (const JsonMember& member : value.members) check_value(member.value, Wants::kSchema);
      return;
    case Wants::kNames:
      return check_list(
          value, [](const JsonValue& item) { return item.is_string(); }, "a list of names");
    case Wants::kList:
      return require(!value.items.empty(), "a list of values that is not empty");
    case Wants::kTypeOrTypes:
      if (!value.is_array()) {
        types_of_name(value);
        return;
      }
      require(!value.items.empty(), "a type or a list of types");
      for (const JsonValue& item : value.items) types_of_name(item);
      return;
  }
}

}  // namespace

void refuse(const JsonValue& place, std::string_view what) {
  base::raise(ErrorKind::kUsage, "JSON schema, {}: {}", pointer_to(place), what);
}

void check_keywords(const JsonValue& schema) {
  for (const JsonMember& member : schema.members) {
    const auto known = std::find_if(kKeywords.begin(), kKeywords.end(),
                                    [&](const Keyword& k) { return k.name == member.name; });
    if (known != kKeywords.end()) {
      check_value(member.value, known->wants);
    } else if (!member.name.starts_with("x-")) {
      refuse(member.value, "the keyword '" + member.name + "' is not supported");
    }
  }
  const JsonValue* unique = schema.find("uniqueItems");
  if (unique && unique->flag) refuse(*unique, "the keyword 'uniqueItems' is not supported");
}

Types declared_types(const JsonValue& schema) {
  const JsonValue* type = schema.find("type");
  if (!type) return kAllTypes;
  Types types = 0;
  if (type->is_array()) {
    for (const JsonValue& item : type->items) types |= types_of_name(item);
  } else {
    types = types_of_name(*type);
  }
  const JsonValue* nullable = schema.find("nullable");
  if (nullable && nullable->flag) types |= kNullType;
  return types;
}

Types implied_types(const JsonValue& schema) {
  Types types = 0;
  for (const Keyword& keyword : kKeywords) {
    if (keyword.types != 0 && schema.find(keyword.name)) types |= keyword.types;
  }
  if ((types & kNumberType) != 0) types |= kIntegerType;
  if (schema.find("format")) types |= kStringType;
  return types;
}

Types type_of(const JsonValue& value) {
  switch (value.type) {
    case Type::kNull:
      return kNullType;
    case Type::kBoolean:
      return kBooleanType;
    case Type::kInteger:
      return kIntegerType;
    case Type::kNumber:
      return value.number() == std::floor(value.number()) ? kIntegerType : kNumberType;
    case Type::kString:
      return kStringType;
    case Type::kArray:
      return kArrayType;
    case Type::kObject:
      return kObjectType;
  }
  return 0;
}

std::uint32_t count_of(const JsonValue& schema, std::string_view keyword, std::uint32_t otherwise) {
  const JsonValue* value = schema.find(keyword);
  if (!value) return otherwise;
  constexpr double kMost = 1e9;
  return static_cast<std::uint32_t>(std::min(value->number(), kMost));
}

}  // namespace lemma::text::constraint
