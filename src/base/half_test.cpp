// SPDX-License-Identifier: Apache-2.0
#include "base/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lemma::base {
namespace {

// The value of an f16 by the textbook definition, independent of bit tricks.
double f16_by_definition(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == 0x1f) {
    return mantissa ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Half, WidensEveryF16ToItsDefinition) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double expected = f16_by_definition(bits);
    const float found = f16_to_f32(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << i;
    } else {
      ASSERT_EQ(static_cast<double>(found), expected) << i;
      ASSERT_EQ(std::signbit(found), (bits & 0x8000) != 0) << i;
    }
  }
}

TEST(Half, RoundTripsEveryF16) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const bool is_nan = (bits & 0x7fff) > 0x7c00;
    const auto expected = static_cast<std::uint16_t>(is_nan ? bits | 0x0200 : bits);
    ASSERT_EQ(f32_to_f16(f16_to_f32(bits)), expected) << i;
  }
}

TEST(Half, RoundsBetweenNeighboursToNearestEven) {
  // Every pair of neighbouring magnitudes; the last pair's upper end stands for infinity (65536).
  for (std::uint16_t low = 0; low < 0x7c00; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const float below = f16_to_f32(low);
    const float above = high == 0x7c00 ? 65536.f : f16_to_f32(high);
    const float middle = (below + above) / 2;  // exact: f32 has 13 more mantissa bits
    const std::uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(f32_to_f16(middle), even) << low;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.f)), low) << low;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, above)), high) << low;
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000) << low;
  }
}

TEST(Half, OverflowsToInfinityAndUnderflowsToSignedZero) {
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.f), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(f32_to_f16(-0x1p-25f), 0x8000);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0x0000);
}

TEST(Half, RoundTripsEveryBf16) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const bool is_nan = (bits & 0x7fff) > 0x7f80;
    const auto expected = static_cast<std::uint16_t>(is_nan ? bits | 0x0040 : bits);
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(bits)), expected) << i;
  }
}

TEST(Half, RoundsF32ToTheNearestEvenBf16) {
  const auto from_bits = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  EXPECT_EQ(f32_to_bf16(from_bits(0x3f808000)), 0x3f80);  // tie, even below
  EXPECT_EQ(f32_to_bf16(from_bits(0x3f818000)), 0x3f82);  // tie, even above
  EXPECT_EQ(f32_to_bf16(from_bits(0x3f808001)), 0x3f81);
  EXPECT_EQ(f32_to_bf16(from_bits(0x3f807fff)), 0x3f80);
  EXPECT_EQ(f32_to_bf16(from_bits(0x7f7fffff)), 0x7f80);  // largest finite rounds to infinity
  EXPECT_EQ(f32_to_bf16(from_bits(0x7f800001)), 0x7fc0);  // a payload in the low half stays a NaN
}

TEST(Half, IsUsableInConstantExpressions) {
  static_assert(f32_to_f16(1.f) == 0x3c00);
  static_assert(f16_to_f32(0x0001) == 0x1p-24f);
  static_assert(bf16_to_f32(f32_to_bf16(-2.f)) == -2.f);
}

}  // namespace
}  // namespace lemma::base
