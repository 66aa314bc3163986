// SPDX-License-Identifier: Apache-2.0
#include "base/hex.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace lemma::base {
namespace {

TEST(HexValue, IsThatOfADigitInEitherCaseAndOfNothingElse) {
  constexpr std::u32string_view kSmall = U"0123456789abcdef", kLarge = U"0123456789ABCDEF";
  for (char32_t c = 0; c < 0x20000; ++c) {
    const std::size_t small = kSmall.find(c), large = kLarge.find(c);
    const std::size_t at = small != kSmall.npos ? small : large;
    EXPECT_EQ(hex_value(c), at == kSmall.npos ? -1 : static_cast<int>(at)) << std::uint32_t{c};
  }
}

}  // namespace
}  // namespace lemma::base
