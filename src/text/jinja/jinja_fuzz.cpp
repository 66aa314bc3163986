// SPDX-License-Identifier: Apache-2.0
// Fuzz target: any bytes are a template, which is parsed and rendered with a few variables, twice.
// It must come to the same text or error both times, within its limits; the text must be UTF-8 and
// its marks in order.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.hpp"
#include "base/utf8.hpp"
#include "lemma/error.hpp"
#include "text/jinja/json.hpp"
#include "text/jinja/template.hpp"

namespace {

using namespace lemma;
using namespace lemma::text::jinja;

const Value& variables() {
  static const Value all = read_json(R"({
    "messages": [{"role": "system", "content": "Be <b>brief</b>."},
                 {"role": "user", "content": "Grüße 世界\n\tq", "n": 1},
                 {"role": "assistant", "content": null, "reasoning_content": "hm",
                  "tool_calls": [{"id": "c1", "function": {"name": "f",
                                  "arguments": {"a": 1, "b": [2.5, true, null]}}}]},
                 {"role": "tool", "content": [{"type": "text", "text": "{}"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true,
    "s": "a b", "n": 3, "f": 2.5, "l": [3, 1, 2], "d": {"k": "v", "items": 1}})");
  return all;
}

std::string outcome(std::string_view source) {
  const Limits limits{.steps = 20'000, .output = 1 << 16, .memory = 1 << 20, .calls = 50};
  try {
    const Text text =
        Template::parse(source).render(variables(), {limits, CivilTime{2025, 7, 4, 12, 34, 56}});
    LEMMA_CHECK(base::is_valid_utf8(text.bytes));
    LEMMA_CHECK(text.bytes.size() <= limits.output);
    std::size_t end = 0;
    for (const Span& span : text.input) {
      LEMMA_CHECK(span.begin < span.end && (end == 0 || span.begin > end));
      end = span.end;
    }
    LEMMA_CHECK(end <= text.bytes.size());
    return text.bytes;
  } catch (const Error& error) {
    LEMMA_CHECK(error.kind() == ErrorKind::kTemplate);
    return std::string("error: ") + error.what();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  LEMMA_CHECK(outcome(source) == outcome(source));
  return 0;
}
