// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a tokenizer.json, a zero byte, and a text. Any file may be refused, but not crash,
// and what it accepts must encode and decode the text within a bound on the work.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "lemma/error.hpp"
#include "text/detokenizer.hpp"
#include "text/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lemma;
  using namespace lemma::text;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  const std::string_view text = input.substr(std::min(end + 1, size));
  try {
    const auto tokenizer = Tokenizer::from_json(input.substr(0, end));
    for (const bool parse : {false, true}) {
      const std::vector<TokenId> ids = tokenizer->encode(text, {.parse_special = parse});
      const std::string whole = tokenizer->decode(ids, {.show_special = true});
      Detokenizer out(*tokenizer, {true, true, InvalidBytes::kKeep});
      std::string streamed;
      for (const TokenId id : ids) streamed += out.push(id);
      LEMMA_CHECK(streamed + out.finish() == whole);
    }
  } catch (const Error&) {
    // Noise is refused.
  }
  return 0;
}
