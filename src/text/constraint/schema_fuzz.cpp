// SPDX-License-Identifier: Apache-2.0
// Fuzz target: any text is a JSON schema or is refused with an error; its grammar takes any bytes
// behind the first 0 byte of the input without a fault, and masks agree with single bytes.
#include <cstdint>
#include <string_view>

#include "text/constraint/fuzz_follow.hpp"
#include "text/constraint/json_schema.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lemma::text::constraint;
  if (size > 4096) return 0;
  const auto [text, bytes] = split_input({reinterpret_cast<const char*>(data), size});
  try {
    follow_text(schema_grammar(text, {.compact = size % 2 == 0}), bytes);
  } catch (const lemma::Error&) {
  }
  return 0;
}
