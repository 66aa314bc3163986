// SPDX-License-Identifier: Apache-2.0
// The vocabulary of a tokenizer.json as the keys `tokenizer.ggml.*`, so that a GGUF file made of a
// folder can be read by others. What these keys can say is less than what a tokenizer.json can, so
// the result is tried: only keys whose tokenizer gives the same ids for many texts are handed out.
#pragma once

#include <cstdint>
#include <string>

#include "weights/metadata.hpp"

namespace lemma::text {

struct GgmlVocabulary {
  weights::Metadata keys;  ///< `tokenizer.ggml.*`; empty if there are none
  std::string why_not;     ///< why the keys cannot say it; empty if they can or need not
};

/// `metadata` is that of a folder, with the text of its tokenizer.json. `rows` is the number of
/// rows of the embedding table: readers of GGUF want as many tokens. Throws what reading the
/// tokenizer.json throws.
GgmlVocabulary ggml_vocabulary(const weights::Metadata& metadata, std::uint64_t rows);

/// `metadata` with these keys in the place of its own, or as it is where there are none; says so in
/// a warning with the reason.
weights::Metadata with_ggml_vocabulary(const weights::Metadata& metadata, std::uint64_t rows);

}  // namespace lemma::text
