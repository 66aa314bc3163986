// SPDX-License-Identifier: Apache-2.0
// The value of a hexadecimal digit: what every reader of \xHH, \uHHHH and %HH needs. It takes a
// code point, so that readers of bytes and of decoded text can use it alike.
#pragma once

namespace lemma::base {

/// 0 to 15, or -1 for what is no hexadecimal digit.
constexpr int hex_value(char32_t c) noexcept {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  const char32_t small = c | 0x20;
  return small >= 'a' && small <= 'f' ? static_cast<int>(small - 'a' + 10) : -1;
}

}  // namespace lemma::base
