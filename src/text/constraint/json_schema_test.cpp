// SPDX-License-Identifier: Apache-2.0
#include "text/constraint/json_schema.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "text/constraint/accepts.hpp"

namespace lemma::text::constraint {
namespace {

using ::testing::HasSubstr;

std::string schema_refusal(std::string_view text) {
  return refusal([&] { Automaton::compile(schema_grammar(text)); });
}

struct Expected {
  const char* schema;
  std::vector<const char*> good, bad;
};

void check(const std::vector<Expected>& table) {
  for (const Expected& row : table) {
    Acceptor a = schema(row.schema);
    for (const char* text : row.good) EXPECT_TRUE(a.whole(text)) << row.schema << " : " << text;
    for (const char* text : row.bad) EXPECT_FALSE(a.whole(text)) << row.schema << " : " << text;
  }
}

TEST(JsonSchema, TakesAnyJsonWhereItSaysNothing) {
  check({{"{}",
          {"1", "-0.5e+12", "\"\\u00e9\\ud83d\\ude00\\n\u4e16\"", "null", "true", "[]", "{}",
           "[1, [2, {\"a\": false}]]", "{\n  \"a\": [\n    1,\n    2\n  ]\n}"},
          {"", "01", "1.", ".5", "+1", "\"\\ud83d\"", "\"\\ude00\"", "\"\\x41\"", "\"\n\"", "[1,]",
           "{\"a\":}", "{a:1}", "nul", "[1 2]"}},
         {"true", {"1", "{}"}, {"x"}}});
}

TEST(JsonSchema, KeepsToTypesAndListsOfThem) {
  check({{R"({"type": "null"})", {"null"}, {"0"}},
         {R"({"type": "boolean"})", {"true", "false"}, {"null"}},
         {R"({"type": "integer"})", {"0", "-12", "999999999999999999"}, {"1.0", "01", "-0", "-"}},
         {R"({"type": "number"})", {"0", "-12.5", "1e9", "1.5E-10"}, {"1.", "e1"}},
         {R"({"type": ["string", "null"]})", {"\"a\"", "null"}, {"1"}},
         {R"({"type": "integer", "nullable": true})", {"null", "3"}, {"\"\""}},
         {R"({"type": ["integer", "number"]})", {"1", "1.5"}, {"null"}}});
}

TEST(JsonSchema, InfersTheTypeFromItsKeywords) {
  check({{R"({"minimum": 3})", {"3", "4.5"}, {"\"a\"", "null", "2"}},
         {R"({"properties": {"a": true}})", {"{}", "{\"a\":1}"}, {"[]", "3"}}});
}

TEST(JsonSchema, CountsCodePointsInStrings) {
  check({{R"({"type": "string", "minLength": 2, "maxLength": 3})",
          {"\"ab\"", "\"\u4e16\u4e16\u4e16\"", "\"\\n\\ud83d\\ude00\"", "\"\\u00e9x\""},
          {"\"a\"", "\"abcd\"", "\"\U0001F600\""}}});
}

TEST(JsonSchema, SearchesForAPattern) {
  check(
      {{R"({"type": "string", "pattern": "b+"})", {"\"abbc\"", "\"b\""}, {"\"a\"", "\"\""}},
       {R"({"type": "string", "pattern": "^b+$"})", {"\"bb\""}, {"\"ab\"", "\"ba\"", "\"\""}},
       {R"s({"type": "string", "pattern": "^(?:a|b$)"})s", {"\"axx\"", "\"b\""}, {"\"bx\""}},
       {R"({"type": "string", "pattern": "^\\d{2,3}[^\\s\"]?\\.$"})",
        {"\"12.\"", "\"123x.\""},
        {"\"1.\"", "\"12 .\""}},
       {R"({"type": "string", "pattern": "^[\"\\\\\n]+$"})", {R"("\"\\\n")"}, {"\"a\"", "\"\n\""}},
       {R"({"type": "string", "pattern": "^\\p{Lu}\\u{1F600}.$"})",
        {"\"\u00c9\U0001F600x\""},
        {"\"e\U0001F600x\""}},
       {R"({"type": "string", "pattern": "^a*$", "maxLength": 3, "minLength": 1})",
        {"\"a\"", "\"aaa\""},
        {"\"\"", "\"aaaa\"", "\"b\""}}});
}

TEST(JsonSchema, KnowsTheFormats) {
  check({{R"({"format": "date-time"})",
          {"\"2026-11-29T21:00:59Z\"", "\"2000-02-29T00:00:00.25+01:30\""},
          {"\"2026-11-31T21:00:59Z\"", "\"2026-11-29\"", "\"1900-02-29T00:00:00Z\""}},
         {R"({"format": "date"})", {"\"2024-02-29\""}, {"\"2023-02-29\"", "\"2024-13-01\""}},
         {R"({"format": "time"})", {"\"23:59:59Z\""}, {"\"24:00:00Z\"", "\"23:59:59\""}},
         {R"({"format": "email"})", {"\"a.b+c@example.org\""}, {"\"a@b\"", "\"@b.c\""}},
         {R"({"format": "uuid"})",
          {"\"123e4567-e89b-12d3-a456-426614174000\""},
          {"\"123e4567e89b12d3a456426614174000\""}},
         {R"({"format": "ipv4"})",
          {"\"255.0.10.1\""},
          {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
         {R"({"format": "ipv6"})",
          {"\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1:2\"", "\"::ffff:1.2.3.4\"",
           "\"1:2:3:4:5:6:7::\"", "\"1::8\""},
          {"\"1:2:3\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\"", "\":::\""}},
         {R"({"format": "hostname"})", {"\"a-b.example\""}, {"\"-a.b\"", "\"a..b\""}},
         {R"({"format": "uri"})",
          {"\"https://a.b/c?d=e#f\"", "\"mailto:a@b.c\""},
          {"\"/a\"", "\"a b:\""}},
         {R"({"format": "uri-reference"})", {"\"/a/b\"", "\"https://a\"", "\"\""}, {"\"a b\""}},
         {R"({"format": "duration"})",
          {"\"P1DT12H\"", "\"PT5M\"", "\"P3W\""},
          {"\"P\"", "\"1D\"", "\"PT\""}},
         {R"({"format": "json-pointer"})", {"\"\"", "\"/a~1b/0\""}, {"\"a\"", "\"/~2\""}}});
}

TEST(JsonSchema, LeavesOutLongStringsWhereAPatternMeetsALargeLength) {
  Acceptor a = schema(R"({"format": "uri", "minLength": 1, "maxLength": 2083})");
  EXPECT_TRUE(a.whole("\"https://example.org/" + std::string(250, 'x') + "\""));
  EXPECT_LT(a.prefix("\"https://example.org/" + std::string(2083, 'x')), 2084u);
}

TEST(JsonSchema, BoundsIntegersDigitByDigit) {
  for (const auto& [low, high] : std::vector<std::pair<int, int>>{
           {0, 0}, {-3, 3}, {7, 123}, {-250, -17}, {-9, 1000}, {96, 106}, {-1, 0}}) {
    for (const int step : {1, 3, 7}) {
      Acceptor a = schema("{\"type\":\"integer\",\"minimum\":" + std::to_string(low) +
                          ",\"maximum\":" + std::to_string(high) +
                          ",\"multipleOf\":" + std::to_string(step) + "}");
      for (int n = low - 120; n <= high + 120; ++n) {
        EXPECT_EQ(a.whole(std::to_string(n)), n >= low && n <= high && n % step == 0)
            << n << " in " << low << ".." << high << " by " << step;
      }
    }
  }
  check({{R"({"type": "integer", "exclusiveMinimum": 2.5, "exclusiveMaximum": 5})",
          {"3", "4"},
          {"2", "5"}},
         {R"({"type": "integer", "minimum": 1e3})", {"1000", "123456789012345678"}, {"999"}}});
}

TEST(JsonSchema, BoundsDecimals) {
  check({{R"({"type": "number", "minimum": 0, "maximum": 1})",
          {"0", "1", "0.5", "1.0", "0.0", "1.000"},
          {"1.01", "-0.5", "2", "1e0", "-0.0"}},
         {R"({"type": "number", "exclusiveMinimum": -1.25, "maximum": 10.5})",
          {"-1.2", "-1.249", "-1", "10.5", "10.50", "9.99", "0"},
          {"-1.25", "-1.250", "-2", "10.51", "11", "-1.3"}},
         {R"({"type": "number", "exclusiveMaximum": 3})", {"2.999", "-100.5"}, {"3", "3.0", "3.1"}},
         {R"({"type": "number", "minimum": 99.5})", {"99.5", "100", "99.51"}, {"99.49", "99", "9"}},
         {R"({"type": "number", "maximum": -0.5})", {"-0.5", "-3"}, {"-0.49", "0", "-0"}},
         {R"({"type": "number", "multipleOf": 5})", {"0", "-15"}, {"3", "5.0"}}});
}

TEST(JsonSchema, WritesMembersInOrderWithTheRequiredOnes) {
  check({{R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"},
                                               "c": {"type": "boolean"}}, "required": ["b"]})",
          {"{\"b\":null}", "{\"a\":1,\"b\":null}", "{ \"b\": null, \"c\": true }",
           "{\n  \"a\": 1,\n  \"b\": null,\n  \"c\": false\n}"},
          {"{}", "{\"b\":null,\"a\":1}", "{\"a\":1}", "{\"b\":null,}", "{\"b\":null,\"d\":1}",
           "{\"a\":1 \"b\":null}", "{\"b\":null,\"b\":null}"}},
         {R"({"type": "object", "required": ["x"]})", {"{\"x\":1}", "{\"x\":1,\"y\":2}"}, {"{}"}}});
}

TEST(JsonSchema, OpensAnObjectWhereItSaysSo) {
  check(
      {{R"({"properties": {"ab": {"type": "integer"}}, "additionalProperties": {"type": "null"}})",
        {"{}", "{\"ab\":1}", "{\"ab\":1,\"a\":null,\"abc\":null}", "{\"b\":null}", "{\"\":null}",
         "{\"a\\nb\":null}"},
        {"{\"ab\":null}", "{\"b\":1}", "{\"b\":null,\"ab\":1}", "{\"\\u0061b\":null}"}},
       {R"({"type": "object", "additionalProperties": false})", {"{}", "{ }"}, {"{\"a\":1}"}},
       {R"({"additionalProperties": {"type": "integer"}, "maxProperties": 2})",
        {"{}", "{\"a\":1,\"b\":2}"},
        {"{\"a\":1,\"b\":2,\"c\":3}"}},
       {R"({"patternProperties": {"^x[0-9]$": {"type": "integer"}}, "additionalProperties": false})",
        {"{}", "{\"x1\":1,\"x2\":2}"},
        {"{\"x\":1}", "{\"x1\":null}"}}});
}

TEST(JsonSchema, CountsItems) {
  check(
      {{R"({"items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
        {"[1,2]", "[1, 2, 3]", "[\n  1,\n  2\n]"},
        {"[]", "[1]", "[1,2,3,4]", "[1,2,]", "[1,\"a\"]"}},
       {R"({"prefixItems": [{"type": "integer"}, {"type": "null"}], "items": {"type": "boolean"}})",
        {"[]", "[1]", "[1,null]", "[1,null,true,false]"},
        {"[null]", "[1,null,1]"}},
       {R"({"prefixItems": [{"type": "integer"}], "items": false})", {"[]", "[1]"}, {"[1,2]"}},
       {R"({"prefixItems": [{"type": "integer"}], "items": false, "minItems": 1})",
        {"[1]"},
        {"[]"}},
       {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}}});
}

TEST(JsonSchema, ListsValues) {
  check({{R"({"enum": ["a", 1, null, true, {"k": [1, "x"]}, 2.0]})",
          {"\"a\"", "1", "null", "true", "{\"k\":[1,\"x\"]}", "{\"k\": [1, \"x\"]}", "2"},
          {"\"b\"", "false", "{\"k\":[1]}"}},
         {R"({"const": "quoted \"\u0001\""})", {R"("quoted \"\u0001\"")"}, {"\"quoted\""}},
         {R"({"type": "string", "enum": ["a", 1, "bcd"], "maxLength": 2})",
          {"\"a\""},
          {"1", "\"bcd\""}},
         {R"({"type": "integer", "enum": [1, 5, 9.0, 2.5], "minimum": 2})",
          {"5", "9"},
          {"1", "2.5"}}});
}

TEST(JsonSchema, CombinesAlternatives) {
  check({{R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
          {"1", "\"a\""},
          {"\"ab\"", "null"}},
         {R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
              "anyOf": [{"properties": {"b": {"const": 1}}, "required": ["b"]},
                        {"properties": {"c": {"const": 2}}, "required": ["c"]}]})",
          {"{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":2}"},
          {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"}},
         {R"({"oneOf": [{"type": "null"}, {"type": "integer"}]})", {"null", "1"}, {"true"}},
         {R"({"oneOf": [
               {"type": "object", "properties": {"k": {"const": "x"}, "v": {"type": "integer"}}, "required": ["k"]},
               {"type": "object", "properties": {"k": {"const": "y"}}, "required": ["k"]}]})",
          {"{\"k\":\"x\",\"v\":1}", "{\"k\":\"y\"}"},
          {"{\"k\":\"z\"}", "{\"k\":\"y\",\"v\":1}"}}});
}

TEST(JsonSchema, MergesConjunctions) {
  check(
      {{R"({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}, {"minimum": 4}]})",
        {"4", "5"},
        {"3", "6"}},
       {R"({"type": "object", "properties": {"a": {"type": "integer"}},
              "allOf": [{"properties": {"a": {"minimum": 5}, "b": {"type": "null"}}, "required": ["b"]}]})",
        {"{\"a\":5,\"b\":null}", "{\"b\":null}"},
        {"{\"a\":4,\"b\":null}", "{\"a\":5}"}},
       {R"({"allOf": [{"properties": {"a": true}, "additionalProperties": false},
                        {"properties": {"b": true, "a": {"type": "null"}}}]})",
        {"{}", "{\"a\":null}"},
        {"{\"b\":1}", "{\"a\":1}"}},
       {R"({"$ref": "#/$defs/n", "maximum": 2, "$defs": {"n": {"type": "integer", "minimum": 1}}})",
        {"1", "2"},
        {"0", "3"}}});
}

TEST(JsonSchema, FollowsReferencesAndRecursion) {
  check(
      {{R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object",
              "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
              "required": ["v"]}}})",
        {"{\"v\":1}", "{\"v\":1,\"kids\":[{\"v\":2,\"kids\":[]},{\"v\":3}]}"},
        {"{\"v\":1,\"kids\":[{}]}"}},
       {R"({"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]})",
        {"{\"next\":{\"next\":null}}"},
        {"{\"next\":{}}"}},
       {R"({"definitions": {"a/b~c": {"type": "null"}}, "$ref": "#/definitions/a~1b~0c"})",
        {"null"},
        {"1"}},
       {R"({"items": {"$ref": "#here"}, "$defs": {"x": {"$anchor": "here", "type": "null"}}})",
        {"[null]"},
        {"[1]"}}});
}

TEST(JsonSchema, LeavesOutBlanksIfAsked) {
  Acceptor a = schema(R"({"type": "array", "items": {"type": "object", "required": ["a"]}})", true);
  EXPECT_TRUE(a.whole(R"([{"a":1},{"a":"b c"}])"));
  EXPECT_FALSE(a.whole(R"([{"a": 1}])"));
  EXPECT_FALSE(a.whole(R"([{"a":1}, {"a":1}])"));
}

TEST(JsonSchema, BoundsBlanks) {
  Acceptor a = schema("{\"type\": \"array\"}");
  EXPECT_TRUE(a.open("[\n" + std::string(40, ' ')));
  EXPECT_EQ(a.prefix("[\n" + std::string(41, ' ')), 42u);
  EXPECT_EQ(a.prefix("[  "), 2u);
  EXPECT_EQ(a.prefix(" []"), 0u);
}

TEST(JsonSchema, RefusesWhatItCannotHonourByNameAndPlace) {
  const std::pair<const char*, std::vector<const char*>> table[] = {
      {R"({"type": "object", "properties": {"a": {"not": {}}}})", {"#/properties/a/not", "'not'"}},
      {R"({"if": {}})", {"'if'"}},
      {R"({"items": {"uniqueItems": true}})", {"#/items/uniqueItems"}},
      {R"({"contains": {}})", {"'contains'"}},
      {R"({"dependentRequired": {}})", {"'dependentRequired'"}},
      {R"({"propertyNames": {}})", {"'propertyNames'"}},
      {R"({"unevaluatedProperties": false})", {"'unevaluatedProperties'"}},
      {R"({"$dynamicRef": "#x"})", {"'$dynamicRef'"}},
      {R"({"maxLenght": 3})", {"#/maxLenght", "'maxLenght'"}},
      {R"({"type": "strnig"})", {"#/type", "expected a type's name"}},
      {R"({"type": "string", "format": "idn-email"})", {"#/format", "'idn-email'", "date-time"}},
      {R"s({"pattern": "(?=a)"})s", {"#/pattern", "look-around"}},
      {R"({"pattern": "\\bx"})", {"#/pattern", "word border"}},
      {R"({"pattern": "(a)\\1"})", {"#/pattern", "back references"}},
      {R"({"pattern": "(a"})", {"#/pattern", "a group has no ')'"}},
      {R"({"type": "number", "multipleOf": 0.1})", {"#/multipleOf"}},
      {R"({"$ref": "https://example.org/x"})", {"#/$ref", "outside of this document"}},
      {R"({"$ref": "#/$defs/x"})", {"#/$ref", "points to nothing"}},
      {R"({"$ref": "#"})", {"refers to itself"}},
      {R"({"minProperties": 2})", {"#/minProperties"}},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", {"#/oneOf", "use anyOf"}},
      {R"({"oneOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]})",
       {"#/oneOf"}},
      {R"({"properties": {"a/b": {"minLength": -1}}})",
       {"#/properties/a~1b/minLength", "whole number"}},
      {R"({"required": "a"})", {"#/required"}},
      {R"({"items": [{}]})", {"#/items", "expected a schema"}},
      {R"({"enum": []})", {"#/enum"}},
      {R"({"enum": [{"a": 1}], "minProperties": 1})", {"beside enum or const"}},
      {R"({"a": 1, "a": 2})", {"'a' stands twice"}},
      {R"({"type": )", {"not JSON"}},
      {R"([])", {"expected a schema"}},
      {"false", {"no text at all"}},
      {R"({"type": "object", "required": ["a"], "properties": {"a": false}})", {"no text at all"}},
  };
  for (const auto& [text, parts] : table) {
    for (const char* part : parts) EXPECT_THAT(schema_refusal(text), HasSubstr(part)) << text;
  }
}

TEST(JsonSchema, TakesAnnotations) {
  EXPECT_EQ(
      schema_refusal(R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x",
    "title": "t", "description": "d", "default": 1, "examples": [1], "deprecated": true,
    "readOnly": true, "$comment": "c", "x-order": 3, "type": "integer", "format": "int64"})"),
      "");
}

TEST(JsonSchema, BoundsWhatAHostileSchemaCosts) {
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "{\"items\":";
  EXPECT_THAT(schema_refusal(deep), HasSubstr("nested deeper than 200"));

  // Alternatives of alternatives, each conjunction another rule.
  std::string any = R"({"allOf": [)";
  for (int i = 0; i < 40; ++i) {
    any += std::string(i > 0 ? "," : "") + R"({"anyOf": [{"minimum": )" + std::to_string(i) +
           R"(}, {"maximum": )" + std::to_string(i) + "}]}";
  }
  EXPECT_THAT(schema_refusal(any + "]}"), HasSubstr("combinations"));

  // References that double at each step.
  std::string defs = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 60; ++i) {
    const std::string next = "\"#/$defs/d" + std::to_string(i + 1) + "\"";
    defs += "\"d" + std::to_string(i) + R"(": {"allOf": [{"$ref": )" + next + R"(}, {"$ref": )" +
            next + R"(}, {"properties": {"p": {"$ref": )" + next + "}}}]},";
  }
  EXPECT_EQ(schema_refusal(defs + R"("d60": {}}})"), "");

  std::string list = R"({"enum": [)";
  for (int i = 0; i < 100000; ++i) {
    list += std::string(i > 0 ? ",\"" : "\"") + std::to_string(i * 7919 % 100003) + " of many\"";
  }
  Acceptor a = schema(list + "]}");
  EXPECT_TRUE(a.whole("\"0 of many\""));
  EXPECT_FALSE(a.whole("\"100003 of many\""));

  EXPECT_THAT(schema_refusal(R"s({"pattern": "^(?:a|b)*a(?:a|b){18}$"})s"), HasSubstr("states"));
  EXPECT_THAT(schema_refusal(R"({"pattern": "(((a{100}){100}){100}){100}"})"), HasSubstr("states"));
  Acceptor many = schema(R"({"type": "string", "maxLength": 1000000000, "minLength": 900000000})");
  EXPECT_TRUE(many.open("\"" + std::string(10000, 'x')));
}

}  // namespace
}  // namespace lemma::text::constraint
