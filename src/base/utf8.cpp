// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.hpp"

#include "base/check.hpp"

namespace lemma::base {
namespace {

// What a lead byte promises (Unicode Standard, table 3-7). The second byte's range is narrower than
// 80..BF after E0, ED, F0 and F4, which is how overlong forms and surrogates are kept out.
struct Lead {
  unsigned length;  // 0: not a lead byte
  unsigned second_low, second_high;
  char32_t bits;  // the lead's share of the code point
};

Lead classify(unsigned byte) noexcept {
  if (byte < 0x80) return {1, 0, 0, byte};
  if (byte < 0xc2) return {0, 0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf, byte & 0x1fu};
  if (byte < 0xf0) {
    return {3, byte == 0xe0 ? 0xa0u : 0x80u, byte == 0xed ? 0x9fu : 0xbfu, byte & 0x0fu};
  }
  if (byte < 0xf5) {
    return {4, byte == 0xf0 ? 0x90u : 0x80u, byte == 0xf4 ? 0x8fu : 0xbfu, byte & 0x07u};
  }
  return {0, 0, 0, 0};
}

}  // namespace

Decoded decode_utf8(std::string_view text) noexcept {
  LEMMA_CHECK(!text.empty());
  const auto byte_at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = classify(byte_at(0));
  if (lead.length == 0) return {kReplacementCharacter, 1, false, false};
  char32_t code_point = lead.bits;
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {kReplacementCharacter, i, false, true};
    const unsigned byte = byte_at(i);
    const unsigned low = i == 1 ? lead.second_low : 0x80u;
    const unsigned high = i == 1 ? lead.second_high : 0xbfu;
    if (byte < low || byte > high) return {kReplacementCharacter, i, false, false};
    code_point = (code_point << 6) | (byte & 0x3fu);
  }
  return {code_point, lead.length, true, false};
}

std::size_t valid_utf8_prefix(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    const Decoded step = decode_utf8(text.substr(at));
    if (!step.valid) break;
    at += step.length;
  }
  return at;
}

bool is_valid_utf8(std::string_view text) noexcept {
  return valid_utf8_prefix(text) == text.size();
}

std::size_t settled_utf8_prefix(std::string_view text) noexcept {
  // Only one of the last three bytes can start a sequence that runs past the end, and the first
  // one found from the back decides, because continuation bytes never start one.
  const std::size_t reach = text.size() < 3 ? text.size() : 3;
  for (std::size_t back = 1; back <= reach; ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    const auto byte = static_cast<unsigned char>(tail[0]);
    if (byte >= 0x80 && byte < 0xc0) continue;
    const Decoded step = decode_utf8(tail);
    return step.truncated && step.length == back ? text.size() - back : text.size();
  }
  return text.size();
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t good = valid_utf8_prefix(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    append_utf8(out, kReplacementCharacter);
    text.remove_prefix(decode_utf8(text).length);
  }
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = kReplacementCharacter;
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | (c >> 6));
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3f));
    put(0x80 | ((c >> 6) & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

}  // namespace lemma::base
