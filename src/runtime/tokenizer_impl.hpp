// SPDX-License-Identifier: Apache-2.0
// What stands behind the public lemma::Tokenizer: a share in a text::Tokenizer.
#pragma once

#include <memory>

#include "lemma/tokenizer.hpp"
#include "text/tokenizer.hpp"

namespace lemma {

struct Tokenizer::Impl {
  std::shared_ptr<const text::Tokenizer> text;
};

}  // namespace lemma
