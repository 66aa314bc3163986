// SPDX-License-Identifier: Apache-2.0
// Texts on which two tokenizers show whether they are the same one: every kind of character that
// published rules tell apart, at the places where they cut, and pieces of the vocabulary itself.
#pragma once

#include <string>
#include <vector>

#include "text/huggingface/normalizer.hpp"
#include "text/tokenizer.hpp"

namespace lemma::text::huggingface {

/// The texts are what `normalizer` makes of its own kind of Unicode (composed letters), so that a
/// tokenizer without one may agree.
std::vector<std::string> probe_texts(const Tokenizer& tokenizer, const Normalizer& normalizer);

}  // namespace lemma::text::huggingface
