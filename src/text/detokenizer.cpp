// SPDX-License-Identifier: Apache-2.0
#include "text/detokenizer.hpp"

#include <utility>

#include "base/utf8.hpp"

namespace lemma::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options)
    : tokenizer_(&tokenizer),
      options_(options),
      at_text_start_(options.at_text_start && tokenizer.adds_space_prefix()) {}

std::string Detokenizer::push(TokenId id) {
  std::string bytes = tokenizer_->piece(id, options_.show_special);
  if (at_text_start_ && !bytes.empty()) {
    if (bytes[0] == ' ') bytes.erase(0, 1);
    at_text_start_ = false;
  }
  held_ += bytes;
  const std::size_t settled = base::settled_utf8_prefix(held_);
  std::string text = held_.substr(0, settled);
  held_.erase(0, settled);
  return options_.invalid_bytes == InvalidBytes::kReplace ? base::repair_utf8(text) : text;
}

std::string Detokenizer::finish() {
  const std::string rest = std::exchange(held_, {});
  return options_.invalid_bytes == InvalidBytes::kReplace ? base::repair_utf8(rest) : rest;
}

}  // namespace lemma::text
