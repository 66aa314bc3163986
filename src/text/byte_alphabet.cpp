// SPDX-License-Identifier: Apache-2.0
#include "text/byte_alphabet.hpp"

#include <array>
#include <cstdint>

#include "base/utf8.hpp"

namespace lemma::text {
namespace {

struct Alphabet {
  std::array<char32_t, 256> letters{};
  std::array<std::int16_t, 0x144> bytes{};
};

constexpr Alphabet kAlphabet = [] {
  Alphabet result;
  result.bytes.fill(-1);
  char32_t next = 0x100;
  for (std::int16_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const char32_t letter = prints ? static_cast<char32_t>(byte) : next++;
    result.letters[static_cast<std::size_t>(byte)] = letter;
    result.bytes[letter] = byte;
  }
  return result;
}();

}  // namespace

char32_t spelling_of_byte(unsigned char byte) noexcept {
  return kAlphabet.letters[byte];
}

std::optional<unsigned char> byte_of_letter(char32_t c) noexcept {
  if (c >= kAlphabet.bytes.size() || kAlphabet.bytes[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(kAlphabet.bytes[c]);
}

std::string bytes_of_spelling(std::string_view spelling) {
  std::string out;
  for (std::size_t at = 0; at < spelling.size();) {
    const base::Decoded c = base::decode_utf8(spelling.substr(at));
    const std::optional<unsigned char> byte = c.valid ? byte_of_letter(c.code_point) : std::nullopt;
    if (byte) {
      out += static_cast<char>(*byte);
    } else {
      out += spelling.substr(at, c.length);
    }
    at += c.length;
  }
  return out;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    base::append_utf8(out, spelling_of_byte(static_cast<unsigned char>(byte)));
  }
  return out;
}

}  // namespace lemma::text
