// SPDX-License-Identifier: Apache-2.0
// Detokenizer: text out of a stream of token ids. A token may end in the middle of a UTF-8
// character; such bytes are held back until the character is whole or can no longer become one.
// What push() and finish() return, put together, is the text of all ids at once, however they came.
// One Detokenizer belongs to one stream; the Tokenizer must outlive it.
//
//   Detokenizer out(*tokenizer);
//   for (TokenId id : generated) std::cout << out.push(id);
//   std::cout << out.finish();
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.hpp"

namespace lemma::text {

/// What becomes of bytes that are not UTF-8.
enum class InvalidBytes : std::uint8_t {
  kReplace,  ///< each maximal subpart becomes U+FFFD (Unicode 15, section 3.9)
  kKeep,     ///< they pass through as they are
};

struct DetokenizerOptions {
  bool show_special = false;
  /// False where the stream continues a prompt; see DecodeOptions.
  bool at_text_start = false;
  InvalidBytes invalid_bytes = InvalidBytes::kReplace;
};

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options = {});

  /// Takes one token and returns the text that is certain now, often the token's own.
  std::string push(TokenId id);

  /// Returns what was held back: bytes of a character that never became whole. Afterwards the
  /// Detokenizer is as new, at the place where the stream stands.
  std::string finish();

  /// True while bytes are held back.
  bool holds_bytes() const noexcept { return !held_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  DetokenizerOptions options_;
  bool at_text_start_;  ///< no token has given text yet, and the first blank is not the text's
  std::string held_;    ///< at most 3 bytes: a proper prefix of one character
};

}  // namespace lemma::text
