// SPDX-License-Identifier: Apache-2.0
// Random schemas on published vocabularies: whatever tokens the masks allow, the text that comes
// out parses and is valid; and whatever instance is valid, the grammar takes it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <regex>
#include <set>

#include "base/utf8.hpp"
#include "test_data.hpp"
#include "text/constraint/accepts.hpp"
#include "text/constraint/matcher.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::text::constraint {
namespace {

using Json = nlohmann::ordered_json;

// ---- a validator that knows nothing of the compiler

/// Empty if `value` satisfies `schema`, else what is wrong. `root` resolves references.
std::string validate(const Json& schema, const Json& value, const Json& root);

std::size_t code_points(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

struct PatternCase {
  const char* pattern;
  std::vector<const char*> matches;
};

const std::vector<PatternCase>& patterns() {
  static const std::vector<PatternCase> table = {
      {"^[a-z]{2,5}$", {"ab", "hello"}},
      {"^(cat|dog)s?$", {"cat", "dogs"}},
      {"[0-9]+x", {"12x", "a7xb"}},
      {"^\\d{3}-\\d{4}$", {"555-0199"}},
      {"^[A-Z][a-z]*( [A-Z][a-z]*){0,2}$", {"Ada", "Ada Lovelace"}},
      {"^(?:\\+|-)?\\d{1,3}(?:\\.\\d+)?$", {"+3.14", "7"}},
      {"q$", {"q", "xyq"}},
      {"^[^\\s]+$", {"a-b", "x"}},
  };
  return table;
}

const std::vector<PatternCase>& formats() {
  static const std::vector<PatternCase> table = {
      {"date", {"2024-02-29", "1999-12-31"}},
      {"date-time", {"2026-11-29T21:00:00Z", "2026-01-01T00:00:00.5+01:00"}},
      {"time", {"12:30:00Z"}},
      {"uuid", {"123e4567-e89b-12d3-a456-426614174000"}},
      {"ipv4", {"10.0.255.1"}},
      {"email", {"a.b@example.org"}},
      {"duration", {"P3Y6M4D", "PT5M"}},
  };
  return table;
}

/// Expressions of the validator's own for formats.
const char* format_expression(const std::string& format) {
  if (format == "date") return "\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])";
  if (format == "date-time")
    return "\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])[Tt]([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d"
           "(\\.\\d+)?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
  if (format == "time")
    return "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
  if (format == "uuid") return "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  if (format == "ipv4") return "((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(\\.(?!$)|$)){4}";
  if (format == "email") return "[^@\\s]+@[A-Za-z0-9.-]+\\.[A-Za-z0-9-]+";
  return "P(?!$)(\\d+Y)?(\\d+M)?(\\d+W)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+S)?)?";
}

bool is_type(const std::string& type, const Json& value) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "integer")
    return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  return value.is_number();
}

std::string validate_object(const Json& schema, const Json& value, const Json& root) {
  if (schema.contains("required")) {
    for (const auto& name : schema["required"])
      if (!value.contains(name.get<std::string>())) return "lacks " + name.dump();
  }
  for (const auto& [name, member] : value.items()) {
    std::string fault;
    if (schema.contains("properties") && schema["properties"].contains(name)) {
      fault = validate(schema["properties"][name], member, root);
    } else if (schema.contains("additionalProperties")) {
      fault = validate(schema["additionalProperties"], member, root);
    }
    if (!fault.empty()) return name + ": " + fault;
  }
  return {};
}

std::string validate_array(const Json& schema, const Json& value, const Json& root) {
  if (schema.contains("minItems") && value.size() < schema["minItems"]) return "too few items";
  if (schema.contains("maxItems") && value.size() > schema["maxItems"]) return "too many items";
  const std::size_t listed = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    std::string fault;
    if (i < listed) {
      fault = validate(schema["prefixItems"][i], value[i], root);
    } else if (schema.contains("items")) {
      fault = validate(schema["items"], value[i], root);
    }
    if (!fault.empty()) return std::to_string(i) + ": " + fault;
  }
  return {};
}

std::string validate_scalar(const Json& schema, const Json& value) {
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    if (schema.contains("minLength") && code_points(text) < schema["minLength"]) return "short";
    if (schema.contains("maxLength") && code_points(text) > schema["maxLength"]) return "long";
    if (schema.contains("pattern") &&
        !std::regex_search(text, std::regex(schema["pattern"].get<std::string>())))
      return "pattern " + text;
    if (schema.contains("format") &&
        !std::regex_match(text, std::regex(format_expression(schema["format"]))))
      return "format " + text;
  }
  if (value.is_number()) {
    const double number = value.get<double>();
    if (schema.contains("minimum") && number < schema["minimum"].get<double>()) return "small";
    if (schema.contains("maximum") && number > schema["maximum"].get<double>()) return "large";
    if (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>())
      return "small";
    if (schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"].get<double>())
      return "large";
    if (schema.contains("multipleOf") &&
        value.get<std::int64_t>() % schema["multipleOf"].get<std::int64_t>() != 0)
      return "no multiple";
  }
  return {};
}

std::string validate_combinations(const Json& schema, const Json& value, const Json& root) {
  if (schema.contains("$ref")) {
    const std::string fault = validate(
        root.at(Json::json_pointer(schema["$ref"].get<std::string>().substr(1))), value, root);
    if (!fault.empty()) return fault;
  }
  if (schema.contains("allOf")) {
    for (const Json& part : schema["allOf"])
      if (const std::string fault = validate(part, value, root); !fault.empty()) return fault;
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (!schema.contains(keyword)) continue;
    const auto holding =
        std::count_if(schema[keyword].begin(), schema[keyword].end(),
                      [&](const Json& part) { return validate(part, value, root).empty(); });
    if (holding == 0) return "no alternative";
    if (std::string(keyword) == "oneOf" && holding != 1) return "several alternatives";
  }
  return {};
}

std::string validate(const Json& schema, const Json& value, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>() ? "" : "false";
  if (schema.contains("type")) {
    const Json& type = schema["type"];
    const bool fits = type.is_array()
                          ? std::any_of(type.begin(), type.end(),
                                        [&](const Json& t) { return is_type(t, value); })
                          : is_type(type, value);
    if (!fits) return "not a " + type.dump();
  }
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
    return "not listed";
  if (schema.contains("const") && schema["const"] != value) return "not the constant";
  std::string fault = validate_combinations(schema, value, root);
  if (fault.empty() && value.is_object()) fault = validate_object(schema, value, root);
  if (fault.empty() && value.is_array()) fault = validate_array(schema, value, root);
  return fault.empty() ? validate_scalar(schema, value) : fault;
}

// ---- schemas, and instances of them in the order that the grammar writes

class SchemaMaker {
 public:
  explicit SchemaMaker(std::uint64_t seed) : random_(seed) {}

  struct Made {
    Json schema;
    std::function<Json()> instance;  ///< uses the maker
  };

  /// A schema document; may define and refer to a recursive part.
  Made document();
  std::size_t below(std::size_t n) { return random_() % n; }

 private:
  Made schema(int depth);
  Made number(bool integral);
  Made string();
  Made array(int depth);
  Made object(int depth);
  Made alternatives(int depth);
  Made conjunction();
  Made values();
  Made anything();
  std::string word();

  std::mt19937_64 random_;
  int recursion_ = 0;
};

std::string SchemaMaker::word() {
  static const char* const kWords[] = {"name", "id",    "value", "it's", "caf\u00e9", "\u540d",
                                       "a b",  "\"q\"", "x/y",   "tail", "kind",      "n\n"};
  return kWords[below(std::size(kWords))];
}

SchemaMaker::Made SchemaMaker::number(bool integral) {
  Json s = {{"type", integral ? "integer" : "number"}};
  const int low = static_cast<int>(below(400)) - 200;
  const int high = low + 1 + static_cast<int>(below(300));
  const int step = integral && below(4) == 0 ? 1 + static_cast<int>(below(12)) : 1;
  if (step > 1) s["multipleOf"] = step;
  const double scale = integral ? 1 : 0.25;
  switch (below(4)) {
    case 0:
      s["minimum"] = low * scale;
      s["maximum"] = (high + step) * scale;
      break;
    case 1:
      s["exclusiveMinimum"] = (low - 1) * scale;
      s["exclusiveMaximum"] = (high + step) * scale;
      break;
    case 2:
      s["minimum"] = low * scale;
      break;
    default:
      break;
  }
  return {s, [this, low, high, step, integral, scale]() -> Json {
            const int n = low + static_cast<int>(below(static_cast<std::size_t>(high - low)));
            const int multiple = step * static_cast<int>(std::ceil(double(n) / step));
            if (integral) return multiple;
            return n * scale;
          }};
}

SchemaMaker::Made SchemaMaker::string() {
  Json s = {{"type", "string"}};
  const std::size_t kind = below(5);
  if (kind < 2) {
    const PatternCase& which =
        kind == 0 ? patterns()[below(patterns().size())] : formats()[below(formats().size())];
    s[kind == 0 ? "pattern" : "format"] = which.pattern;
    return {s, [this, &which]() -> Json { return which.matches[below(which.matches.size())]; }};
  }
  std::size_t least = 0;
  std::size_t most = 12;
  if (kind == 2) s["minLength"] = least = below(4);
  if (kind <= 3) s["maxLength"] = most = least + below(kind == 2 ? 6 : 60);
  return {s, [this, least, most]() -> Json {
            std::string text;
            static const char* const kChars[] = {"a",  "B",      " ",      "\"",         "\\",
                                                 "\n", "\u00e9", "\u4e16", "\U0001F600", "/"};
            for (std::size_t i = least + below(most - least + 1); i > 0; --i)
              text += kChars[below(std::size(kChars))];
            return text;
          }};
}

SchemaMaker::Made SchemaMaker::array(int depth) {
  Json s = {{"type", "array"}};
  std::vector<Made> parts;
  const std::size_t listed = below(3) == 0 ? 1 + below(3) : 0;
  for (std::size_t i = 0; i < listed; ++i) {
    parts.push_back(schema(depth + 1));
    s["prefixItems"].push_back(parts.back().schema);
  }
  Made rest = schema(depth + 1);
  s["items"] = rest.schema;
  std::size_t least = below(3);
  const std::size_t most = least + below(4);
  if (below(2) != 0) s["minItems"] = least;
  if (below(2) != 0) s["maxItems"] = most;
  return {s, [this, parts, rest, least, most]() -> Json {
            Json value = Json::array();
            for (std::size_t i = 0, n = least + below(most - least + 1); i < n; ++i)
              value.push_back(i < parts.size() ? parts[i].instance() : rest.instance());
            return value;
          }};
}

SchemaMaker::Made SchemaMaker::object(int depth) {
  Json s = {{"type", "object"}, {"properties", Json::object()}};
  struct Member {
    std::string name;
    Made made;
    bool required;
  };
  std::vector<Member> members;
  std::set<std::string> names;
  for (std::size_t i = below(5); i > 0; --i) {
    const std::string name = word();
    if (!names.insert(name).second) continue;
    members.push_back({name, schema(depth + 1), below(2) != 0});
    s["properties"][name] = members.back().made.schema;
    if (members.back().required) s["required"].push_back(name);
  }
  std::optional<Made> extra;
  if (below(3) == 0) {
    extra = schema(depth + 1);
    s["additionalProperties"] = extra->schema;
  } else if (below(2) != 0) {
    s["additionalProperties"] = false;
  }
  return {s, [this, members, extra]() -> Json {
            Json value = Json::object();
            for (const Member& member : members)
              if (member.required || below(2) != 0) value[member.name] = member.made.instance();
            for (std::size_t i = extra ? below(3) : 0; i > 0; --i)
              value["other " + std::to_string(i)] = extra->instance();
            return value;
          }};
}

SchemaMaker::Made SchemaMaker::alternatives(int depth) {
  Json s;
  std::vector<Made> ways;
  for (std::size_t i = 2 + below(2); i > 0; --i) {
    ways.push_back(schema(depth + 1));
    s["anyOf"].push_back(ways.back().schema);
  }
  return {s, [this, ways] { return ways[below(ways.size())].instance(); }};
}

SchemaMaker::Made SchemaMaker::conjunction() {
  const int low = static_cast<int>(below(50));
  const Json s = {
      {"type", "object"},
      {"properties", {{"a", {{"type", "integer"}, {"minimum", low}}}}},
      {"required", {"a"}},
      {"allOf",
       {{{"properties", {{"a", {{"maximum", low + 20}}}, {"b", {{"type", "boolean"}}}}}},
        {{"required", {"b"}}}}}};
  return {s, [this, low]() -> Json {
            return {{"a", low + static_cast<int>(below(21))}, {"b", below(2) == 0}};
          }};
}

SchemaMaker::Made SchemaMaker::values() {
  const Json list = {"red",
                     "caf\u00e9 \"x\"",
                     17,
                     -2.5,
                     true,
                     nullptr,
                     {1, {{"k", "v"}}},
                     {{"z", 1}, {"y", Json::array()}}};
  Json s;
  if (below(3) == 0) {
    s["const"] = list[below(list.size())];
    return {s, [s] { return s["const"]; }};
  }
  for (const Json& value : list)
    if (below(2) != 0) s["enum"].push_back(value);
  if (!s.contains("enum")) s["enum"].push_back("only");
  return {s, [this, s] { return s["enum"][below(s["enum"].size())]; }};
}

SchemaMaker::Made SchemaMaker::anything() {
  return {true, [this]() -> Json {
            const Json list = {1, "x", nullptr, {1, 2, {{"a", "b"}}}, {{"k", 1.5}}};
            return list[below(list.size())];
          }};
}

SchemaMaker::Made SchemaMaker::schema(int depth) {
  const std::size_t kind = below(depth < 3 ? 14 : 7);
  switch (kind) {
    case 0:
      return number(true);
    case 1:
      return number(false);
    case 2:
    case 3:
      return string();
    case 4:
      return values();
    case 5: {
      const Json s = {{"type", {"boolean", "null"}}};
      return {s, [this]() -> Json { return below(2) == 0 ? Json(nullptr) : Json(true); }};
    }
    case 6: {
      const Json s = {{"$ref", "#/$defs/node"}};
      return {s, [this]() -> Json {
                Json value = {{"v", 1}};
                if (below(2) != 0) value["next"] = {{"v", 2}, {"next", nullptr}};
                return value;
              }};
    }
    case 7:
    case 8:
      return array(depth);
    case 9:
      return alternatives(depth);
    case 10:
      return conjunction();
    case 11:
      return anything();
    default:
      return object(depth);
  }
}

SchemaMaker::Made SchemaMaker::document() {
  Made made = schema(0);
  if (made.schema.is_boolean()) made.schema = Json::object();
  made.schema["$defs"] = {
      {"node",
       {{"type", "object"},
        {"properties",
         {{"v", {{"type", "integer"}}},
          {"next", {{"anyOf", {{{"$ref", "#/$defs/node"}}, {{"type", "null"}}}}}}}},
        {"required", {"v"}},
        {"additionalProperties", false}}}};
  return made;
}

// ---- the tests

bool is_deep() {
  const char* deep = std::getenv("LEMMA_DEEP");
  return deep != nullptr && std::string(deep) == "1";
}

/// True inside a JSON string that is not closed yet.
bool in_string(std::string_view text) {
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (inside && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      inside = !inside;
    }
  }
  return inside;
}

/// How much a token helps a text to its end: what closes comes first.
int closing_rank(std::string_view token, bool inside) {
  static constexpr std::string_view kOrder = "}]\"n0123456789t,: f[{";
  if (token.size() != 1) return 100;
  // What the patterns of this test wait for comes before other characters.
  if (inside)
    return token == "\""                                                                     ? 0
           : std::string_view("0123456789xq-:.T@P").find(token[0]) != std::string_view::npos ? 1
                                                                                             : 2;
  const std::size_t at = kOrder.find(token[0]);
  return at == std::string_view::npos ? 50 : static_cast<int>(at);
}

/// A text of random allowed tokens, which is brought to its end after a while.
std::string random_text(const std::shared_ptr<const Program>& program,
                        const std::shared_ptr<const Tokenizer>& tokenizer, SchemaMaker& maker,
                        std::size_t free_tokens) {
  Matcher matcher(program, tokenizer);
  TokenBits bits;
  std::string text;
  for (std::size_t step = 0; step < 4000; ++step) {
    if (matcher.finished()) return text;
    if (!matcher.mask(bits)) return text + "   (nothing allowed)";
    if (matcher.may_end() && (step >= free_tokens || maker.below(8) == 0)) return text;
    std::vector<TokenId> choices;
    int best = 1000;
    const bool inside = in_string(text);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      for (std::uint64_t word = bits[i]; word != 0; word &= word - 1) {
        const auto id = static_cast<TokenId>(64 * i + std::size_t(std::countr_zero(word)));
        if (program->trie().is_end(id)) continue;
        // Towards the end what closes; now and then something else, to leave a circle.
        const int rank = step < free_tokens || step % 7 == 6
                             ? 0
                             : closing_rank(program->trie().text(id), inside);
        if (rank < best) choices.clear();
        best = std::min(best, rank);
        if (rank == best) choices.push_back(id);
      }
    }
    const TokenId id = choices[maker.below(choices.size())];
    EXPECT_TRUE(matcher.take(id));
    text += program->trie().text(id);
  }
  return text + "   (no end)";
}

void run_random_schemas(const std::filesystem::path& vocabulary, std::size_t count,
                        std::uint64_t seed) {
  const std::shared_ptr<const Tokenizer> tokenizer =
      Tokenizer::from_metadata(weights::open_checkpoint(vocabulary)->metadata());
  const auto trie = std::make_shared<const TokenTrie>(*tokenizer);
  SchemaMaker maker(seed);
  for (std::size_t n = 0; n < count; ++n) {
    const Json schema = maker.document().schema;
    const bool compact = maker.below(2) == 0;
    const auto program =
        std::make_shared<const Program>(schema_grammar(schema.dump(), {.compact = compact}), trie);
    const std::string text = random_text(program, tokenizer, maker, 20);
    const Json value = Json::parse(text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << schema.dump() << "\n" << text;
    const std::string fault = validate(schema, value, schema);
    ASSERT_EQ(fault, "") << schema.dump() << "\n" << text;
  }
}

TEST(RandomSchema, GivesValidTextOnASentencePieceVocabulary) {
  LEMMA_TEST_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-llama-spm.gguf");
  run_random_schemas(path, is_deep() ? 5000 : 600, 1);
}

TEST(RandomSchema, GivesValidTextOnAByteLevelVocabulary) {
  LEMMA_TEST_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-starcoder.gguf");
  run_random_schemas(path, is_deep() ? 3000 : 400, 2);
}

TEST(RandomSchema, GivesValidTextOnALargeVocabularyWhenDeep) {
  if (!is_deep()) {
    std::puts("  left out: 1,000 schemas on a vocabulary of 151,936 (LEMMA_DEEP=1)");
    return;
  }
  LEMMA_TEST_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-qwen2.gguf");
  run_random_schemas(path, 1000, 3);
}

TEST(RandomSchema, TakesEveryInstanceCompactAndPretty) {
  SchemaMaker maker(4);
  for (int n = 0; n < (is_deep() ? 10000 : 1000); ++n) {
    const SchemaMaker::Made made = maker.document();
    Acceptor flexible(schema_grammar(made.schema.dump()));
    Acceptor compact(schema_grammar(made.schema.dump(), {.compact = true}));
    for (int i = 0; i < 3; ++i) {
      const Json value = made.instance();
      ASSERT_EQ(validate(made.schema, value, made.schema), "") << made.schema << "\n" << value;
      for (const std::string& text : {value.dump(), value.dump(2)})
        EXPECT_TRUE(flexible.whole(text)) << made.schema << "\n"
                                          << text << "\nup to " << flexible.prefix(text);
      EXPECT_TRUE(compact.whole(value.dump())) << made.schema << "\n" << value;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lemma::text::constraint
