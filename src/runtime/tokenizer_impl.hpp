// SPDX-License-Identifier: Apache-2.0
// What stands behind the public lemma::Tokenizer: a share in a text::Tokenizer; and what the public
// options mean to it.
#pragma once

#include <memory>

#include "lemma/tokenizer.hpp"
#include "text/tokenizer.hpp"

namespace lemma {

struct Tokenizer::Impl {
  std::shared_ptr<const text::Tokenizer> text;
};

namespace runtime {

inline text::TokenizerOverrides overrides_of(const TokenizerOptions& options) {
  text::TokenizerOverrides overrides;
  if (!options.pre_tokenizer.empty()) overrides.pre = options.pre_tokenizer;
  return overrides;
}

}  // namespace runtime
}  // namespace lemma
