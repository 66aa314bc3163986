// SPDX-License-Identifier: Apache-2.0
#include "text/huggingface/base64.hpp"

#include <cstdint>

#include "base/raise.hpp"

namespace lemma::text::huggingface {

std::string decode_base64(std::string_view text) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) {
      base::raise(ErrorKind::kBadFile, "tokenizer.json: character 0x{:02X} is not base64",
                  static_cast<unsigned char>(c));
    }
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(static_cast<unsigned char>(bits >> count & 0xff));
    }
  }
  return out;
}

}  // namespace lemma::text::huggingface
