// SPDX-License-Identifier: Apache-2.0
// For the fuzz targets: takes the input's second half through a program, byte by byte and by masks,
// and checks that both say the same.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "base/check.hpp"
#include "lemma/error.hpp"
#include "text/constraint/matcher.hpp"
#include "text/sample_vocabulary.hpp"

namespace lemma::text::constraint {

/// What stands before the first 0 byte, and what behind it.
inline std::pair<std::string_view, std::string_view> split_input(std::string_view input) {
  const std::size_t end = input.find('\0');
  if (end == std::string_view::npos) return {input, {}};
  return {input.substr(0, end), input.substr(end + 1)};
}

/// Token ids below 256 of this vocabulary are the bytes themselves.
inline const std::shared_ptr<const Tokenizer>& fuzz_vocabulary() {
  static const std::shared_ptr<const Tokenizer> shared =
      Tokenizer::from_metadata(sample::byte_level("gpt-2"));
  return shared;
}

inline void follow_text(const Grammar& grammar, std::string_view text) {
  static const auto trie = std::make_shared<const TokenTrie>(*fuzz_vocabulary());
  const auto program = std::make_shared<const Program>(grammar, trie);
  Matcher matcher(program, fuzz_vocabulary());
  TokenBits bits;
  for (std::size_t i = 0; i < text.size() && i < 256; ++i) {
    const bool look = i % 16 < 3;
    const bool any = !look || matcher.mask(bits);
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool taken = matcher.take(text.substr(i, 1));
    if (look) LEMMA_CHECK(taken == ((bits[byte / 64] >> (byte % 64) & 1) != 0));
    if (taken) LEMMA_CHECK(any);
    if (!taken) continue;  // it changed nothing; the next byte is tried at the same place
    if (matcher.finished()) LEMMA_CHECK(matcher.may_end());
  }
}

}  // namespace lemma::text::constraint
