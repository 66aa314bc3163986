// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4), in which a tokenizer.json holds bytes.
#pragma once

#include <string>
#include <string_view>

namespace lemma::text::huggingface {

/// Throws kBadFile for a character outside the alphabet.
std::string decode_base64(std::string_view text);

}  // namespace lemma::text::huggingface
