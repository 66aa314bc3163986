// SPDX-License-Identifier: Apache-2.0
// Cost of token masks on one core: constraint_bench TOKENIZER follows documents through schemas and
// grammars, token by token as a model would write them, and prints the microseconds of a mask and
// of the step to the next token: the first document (cold), then other documents of the same kind
// (warm). Masks are made as the sampler takes them, one flag a token.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "text/constraint/gbnf.hpp"
#include "text/constraint/json_schema.hpp"
#include "text/constraint/matcher.hpp"
#include "weights/checkpoint.hpp"

namespace {

using namespace lemma::text;
using namespace lemma::text::constraint;

/// Microseconds of this thread on a core: other work on the machine does not count.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

class Writer {
 public:
  std::string words(std::size_t count) {
    static const char* const kWords[] = {
        "the",     "river", "stands", "low",  "after", "a dry summer",    "and",  "we",
        "measure", "its",   "depth",  "each", "day",   "\\\"by hand\\\"", "with", "care,",
        "Zürich",  "naïve", "12.5",   "km",   "東京",  "query(x)",        "->",   "fine."};
    std::string out;
    for (std::size_t i = 0; i < count; ++i)
      out += (i > 0 ? " " : "") + std::string(kWords[random_() % std::size(kWords)]);
    return out;
  }
  std::size_t below(std::size_t n) { return random_() % n; }
  std::string number() { return std::to_string(below(100000)) + "." + std::to_string(below(100)); }
  std::string value(int depth) {
    const std::size_t kind = depth > 5 ? below(3) : below(6);
    if (kind == 0) return number();
    if (kind == 1) return below(2) != 0 ? "true" : "null";
    if (kind == 2) return '"' + words(1 + below(12)) + '"';
    std::string out = kind == 3 ? "[" : "{";
    for (std::size_t i = 0, n = below(6); i < n; ++i) {
      if (i > 0) out += ", ";
      if (kind != 3) out += "\"key" + std::to_string(below(50)) + "\": ";
      out += value(depth + 1);
    }
    return out + (kind == 3 ? "]" : "}");
  }

 private:
  std::mt19937_64 random_{20261129};
};

struct Case {
  const char* name;
  bool is_schema;
  std::string text;
  std::string (*document)(Writer&);
};

const char* const kPerson = R"({
  "type": "object", "additionalProperties": false, "required": ["name", "age", "mail", "notes"],
  "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 80},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "mail": {"type": "string", "format": "email"},
    "score": {"type": "number", "minimum": 0, "maximum": 1},
    "kind": {"enum": ["reader", "writer", "editor"]},
    "notes": {"type": "array", "items": {"type": "string"}, "maxItems": 20}}})";

const char* const kTree = R"({
  "$ref": "#/$defs/node",
  "$defs": {"node": {"type": "object", "additionalProperties": false,
    "required": ["title", "children"],
    "properties": {"title": {"type": "string"},
                   "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}})";

const char* const kCall = R"({
  "anyOf": [
    {"type": "object", "required": ["tool", "city"], "additionalProperties": false,
     "properties": {"tool": {"const": "weather"}, "city": {"type": "string"},
                    "day": {"type": "string", "format": "date"}}},
    {"type": "object", "required": ["tool", "code"], "additionalProperties": false,
     "properties": {"tool": {"const": "run"}, "code": {"type": "string"},
                    "id": {"type": "string", "pattern": "^[a-f0-9]{8,32}$"}}}]})";

const char* const kArithmetic = R"g(
root  ::= (line "\n")+
line  ::= sum " = " sum
sum   ::= term (" " [-+] " " term)*
term  ::= factor (" " [*/] " " factor)*
factor ::= [0-9]{1,12} | [a-z] [a-z0-9_]{0,30} | "(" sum ")"
)g";

const char* const kChess = R"g(
root ::= ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | piece | "O-O" "-O"?) [+#]?
piece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBQR])?
)g";

std::string tree(Writer& w, int depth) {
  std::string out = "{\"title\": \"" + w.words(1 + w.below(6)) + "\", \"children\": [";
  const std::size_t count = depth > 4 ? 0 : w.below(4);
  for (std::size_t i = 0; i < count; ++i) out += (i > 0 ? ", " : "") + tree(w, depth + 1);
  return out + "]}";
}

std::vector<Case> cases() {
  return {
      {"any JSON object", true, R"({"type": "object"})",
       [](Writer& w) { return "{\"a\": " + w.value(0) + ", \"b\": " + w.value(0) + "}"; }},
      {"record", true, kPerson,
       [](Writer& w) {
         return "{\"name\": \"Ada of the river\", \"age\": " + std::to_string(w.below(150)) +
                ", \"mail\": \"ada.l@example.org\", \"score\": 0.73, \"kind\": \"writer\", "
                "\"notes\": [\"" +
                w.words(20) + "\", \"" + w.words(30) + "\"]}";
       }},
      {"recursive tree", true, kTree, [](Writer& w) { return tree(w, 0); }},
      {"tool call", true, kCall,
       [](Writer& w) {
         return w.below(2) != 0 ? "{\"tool\": \"weather\", \"city\": \"" + w.words(3) +
                                      "\", \"day\": \"2026-11-29\"}"
                                : "{\"tool\": \"run\", \"code\": \"" + w.words(40) +
                                      "\", \"id\": \"deadbeef0123\"}";
       }},
      {"arithmetic grammar", false, kArithmetic,
       [](Writer& w) {
         std::string out;
         for (int i = 0; i < 6; ++i)
           out += "(a + " + std::to_string(w.below(9999)) + ") * rate_2 = (b - (c + 1)) / 7\n";
         return out;
       }},
      {"chess grammar", false, kChess,
       [](Writer&) {
         return std::string("1. e4 e5\n2. Nf3 Nc6\n3. Bb5 a6\n4. Bxc6 dxc6\n5. O-O f6\n");
       }},
  };
}

struct Times {
  double mask_sum = 0, mask_worst = 0, take_sum = 0;
  std::size_t count = 0;
};

double since(double start) {
  return now() - start;
}

/// False if the document is refused.
bool follow(const std::shared_ptr<const Program>& program,
            const std::shared_ptr<const Tokenizer>& tokenizer, const std::string& document,
            Times& times) {
  Matcher matcher(program, tokenizer);
  std::vector<std::uint8_t> allowed(tokenizer->vocabulary_size());
  for (const TokenId id : tokenizer->encode(document, {.add_special = false})) {
    auto start = now();
    matcher.mask(allowed);
    const double mask = since(start);
    times.mask_sum += mask;
    times.mask_worst = std::max(times.mask_worst, mask);
    ++times.count;
    if (allowed[static_cast<std::size_t>(id)] == 0) return false;
    start = now();
    matcher.take(id);
    times.take_sum += since(start);
  }
  return matcher.may_end();
}

void print(const char* when, const Times& times) {
  const auto count = static_cast<double>(std::max<std::size_t>(1, times.count));
  std::printf("  %s %6zu tokens   mask mean %7.1f  worst %8.1f   step mean %5.2f\n", when,
              times.count, times.mask_sum / count, times.mask_worst, times.take_sum / count);
}

int run(const char* path) {
  const std::shared_ptr<const Tokenizer> tokenizer =
      Tokenizer::from_metadata(lemma::weights::open_checkpoint(path)->metadata());
  auto start = now();
  const auto trie = std::make_shared<const TokenTrie>(*tokenizer);
  std::printf("vocabulary %zu, tree of %zu nodes in %.0f ms; times in microseconds\n",
              tokenizer->vocabulary_size(), trie->nodes().size(), since(start) / 1000);
  for (const Case& c : cases()) {
    start = now();
    const auto program = std::make_shared<const Program>(
        c.is_schema ? schema_grammar(c.text) : parse_gbnf(c.text), trie);
    std::printf("%s: compiled in %.0f\n", c.name, since(start));
    Writer writer;
    Times cold, warm;
    bool fits = follow(program, tokenizer, c.document(writer), cold);
    for (int i = 0; i < 10; ++i) {
      Times ignored;
      fits = follow(program, tokenizer, c.document(writer), ignored) && fits;
    }
    for (int i = 0; i < 40; ++i)
      fits = follow(program, tokenizer, c.document(writer), warm) && fits;
    print("cold", cold);
    print("warm", warm);
    std::printf("  memory %.1f MiB%s\n", static_cast<double>(program->bytes()) / 1048576.0,
                fits ? "" : "   A DOCUMENT WAS REFUSED");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: constraint_bench TOKENIZER\n", stderr);
    return 2;
  }
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
