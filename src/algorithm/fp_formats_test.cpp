// SPDX-License-Identifier: Apache-2.0
// Expected rows: the published vectors of an independent implementation of DeepSeek V4
// (antirez/ds4), for the input 3 sin(0.1 i) in f32.
#include "algorithm/fp_formats.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithm/attention/test_rows.hpp"
#include "base/half.hpp"

namespace lemma::algorithm {
namespace {

using test::kInfinity;
using test::random_row;
using test::Row;

float e4m3(float x) {
  return e4m3_to_f32(f32_to_e4m3(x));
}

Row fp8(const Row& row, std::size_t tail) {
  std::vector<std::byte> bytes(fp8_row_bytes(row.size(), tail));
  EXPECT_TRUE(encode_fp8_row(row, tail, bytes.data()));
  Row decoded(row.size());
  decode_fp8_row(bytes.data(), tail, decoded);
  return decoded;
}

Row fp4(const Row& row) {
  std::vector<std::byte> bytes(fp4_row_bytes(row.size()));
  EXPECT_TRUE(encode_fp4_row(row, bytes.data()));
  Row decoded(row.size());
  decode_fp4_row(bytes.data(), decoded);
  return decoded;
}

TEST(E4m3, RoundsToTheNearest) {
  const std::pair<float, float> rows[] = {
      {0.0009f, 0.f},    {0.00098f, 0.001953125f}, {0.017f, 0.017578125f},
      {1.0625f, 1.f},    {1.1875f, 1.25f},         {17.f, 16.f},
      {19.f, 20.f},      {239.f, 240.f},           {440.f, 448.f},
      {-0.3f, -0.3125f}, {500.f, 448.f},           {-1e9f, -448.f},
      {0x1p-10f, 0.f},   {0x1.8p-9f, 0x1p-8f},     {0x1p-6f, 0x1p-6f}};
  for (const auto& [x, want] : rows) EXPECT_EQ(e4m3(x), want) << x;
}

TEST(E4m3, DecodesAndEncodesEveryCode) {
  float previous = -1.f;
  for (unsigned code = 0; code < 256; ++code) {
    const float x = e4m3_to_f32(std::uint8_t(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(x));
      continue;
    }
    EXPECT_EQ(f32_to_e4m3(x), code) << "the sign of zero too";
    if (code == 0x80) previous = 1.f;
    EXPECT_TRUE(code < 0x80 ? x > previous : x < previous) << code;
    previous = x;
  }
  EXPECT_EQ(f32_to_e4m3(std::nanf("")) & 0x7f, 0x7f);
}

TEST(E4m3, IsNeverFartherThanAnyOtherCode) {
  for (const float x : random_row(200, 1)) {
    const float error = std::abs(e4m3(40.f * x) - 40.f * x);
    for (unsigned code = 0; code < 256; ++code) {
      const float other = e4m3_to_f32(std::uint8_t(code));
      if (!std::isnan(other)) {
        EXPECT_LE(error, std::abs(other - 40.f * x));
      }
    }
  }
}

TEST(E2m1, TakesTheEvenCodeOfTwoThatAreAsNear) {
  const std::pair<float, float> rows[] = {{0.25f, 0.f},  {0.75f, 1.f},   {1.25f, 1.f}, {1.75f, 2.f},
                                          {2.5f, 2.f},   {3.5f, 4.f},    {5.f, 4.f},   {5.1f, 6.f},
                                          {0.26f, 0.5f}, {-0.75f, -1.f}, {9.f, 6.f},   {0.f, 0.f}};
  for (const auto& [x, want] : rows) EXPECT_EQ(e2m1_to_f32(f32_to_e2m1(x)), want) << x;
  EXPECT_TRUE(std::signbit(e2m1_to_f32(f32_to_e2m1(-0.1f))));
}

TEST(E8m0, IsAPowerOfTwo) {
  EXPECT_EQ(e8m0_to_f32(127), 1.f);
  EXPECT_EQ(e8m0_to_f32(0), 0x1p-127f);
  EXPECT_EQ(e8m0_to_f32(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

TEST(GroupScale, DoesNotRoundUpWhereTheLargestFitsExactly) {
  for (int k = -20; k <= 20; ++k) {
    const float unit = std::ldexp(1.f, k);
    EXPECT_EQ(fp8_scale_exponent(448.f * unit), k);
    EXPECT_EQ(fp8_scale_exponent(std::nextafter(448.f * unit, kInfinity)), k + 1);
    EXPECT_EQ(fp8_scale_exponent(std::nextafter(448.f * unit, 0.f)), k);
    EXPECT_EQ(fp4_scale_exponent(6.f * unit), k);
    EXPECT_EQ(fp4_scale_exponent(std::nextafter(6.f * unit, kInfinity)), k + 1);
    EXPECT_EQ(fp4_scale_exponent(4.f * unit), k);
    EXPECT_EQ(fp4_scale_exponent(3.f * unit), k - 1);
  }
}

TEST(Fp8Row, GivesThePublishedRow) {
  Row x(512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.f * std::sin(0.1f * float(i));
  const Row out = fp8(x, 64);
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 8,
                         Row{0, 0.3125f, 0.625f, 0.875f, 1.125f, 1.5f, 1.75f, 1.875f}.begin()));
  double sum = 0.0;  // the published sum has the tail as it came; here it is f16
  for (std::size_t i = 0; i < 512; ++i) sum += double(i < 448 ? out[i] : x[i]) * double(i + 1);
  EXPECT_NEAR(sum, -9541.75435, 1e-3);
  for (std::size_t i = 448; i < 512; ++i) {
    EXPECT_EQ(out[i], base::f16_to_f32(base::f32_to_f16(x[i])));
  }
}

TEST(Fp8Row, TakesLessThanThreeFifthsOfF16) {
  EXPECT_EQ(fp8_row_bytes(512, 64), 448u + 7 + 128);
  EXPECT_EQ(fp8_row_bytes(128, 0), 130u);
  EXPECT_EQ(fp8_row_bytes(100, 16), 84u + 2 + 32);  // the second group has 20
  EXPECT_EQ(fp8_row_bytes(16, 16), 32u);
}

TEST(Fp8Row, GivesAShortLastGroupAScaleOfItsOwn) {
  Row x(84, 400.f);
  for (std::size_t i = 64; i < 68; ++i) x[i] = 3e-3f;  // 1.536 * 2^-9
  for (std::size_t i = 68; i < 84; ++i) x[i] = 1.f;    // the tail
  const Row out = fp8(x, 16);
  EXPECT_EQ(out[0], 384.f);  // 400 lies between 384 and 416: the even code
  for (std::size_t i = 64; i < 68; ++i) EXPECT_NEAR(out[i], x[i], x[i] / 16);
  for (std::size_t i = 68; i < 84; ++i) EXPECT_EQ(out[i], 1.f);
}

TEST(Fp8Row, IsOffByAtMostASixteenth) {
  for (const float size : {1e-3f, 1.f, 1e4f}) {
    Row x = random_row(256, 5);
    for (float& value : x) value *= size;
    const Row out = fp8(x, 0);
    for (std::size_t begin = 0; begin < 256; begin += kFp8Group) {
      float largest = 0.f;
      for (std::size_t i = begin; i < begin + kFp8Group; ++i) {
        largest = std::max(largest, std::abs(x[i]));
      }
      const float scale = std::ldexp(1.f, fp8_scale_exponent(largest));
      for (std::size_t i = begin; i < begin + kFp8Group; ++i) {
        EXPECT_LE(std::abs(out[i] - x[i]), std::max(std::abs(x[i]) / 16.f, scale * 0x1p-10f));
      }
    }
    EXPECT_EQ(fp8(out, 0), out) << "a decoded row encodes to itself";
  }
}

TEST(Fp8Row, KeepsSmallGroupsAndRefusesWhatIsNotFinite) {
  EXPECT_EQ(fp8(Row(64, 0.f), 0), Row(64, 0.f));
  EXPECT_EQ(fp8(Row(64, 1e-12f), 0), Row(64, 0.f)) << "far below the floor of 1e-4";
  std::vector<std::byte> bytes(fp8_row_bytes(128, 64));
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
    for (const std::size_t at : {3u, 70u}) {
      Row row(128, 1.f);
      row[at] = bad;
      EXPECT_FALSE(encode_fp8_row(row, 64, bytes.data())) << at;
    }
  }
  Row row(128, 1.f);
  row[100] = 65520.f;
  EXPECT_FALSE(encode_fp8_row(row, 64, bytes.data())) << "the tail is f16";
  row[100] = 1.f;
  row[5] = std::numeric_limits<float>::max();
  EXPECT_TRUE(encode_fp8_row(row, 64, bytes.data())) << "the scale reaches further";
}

TEST(Fp4Row, GivesThePublishedRowBehindAHadamardTransform) {
  Row x(128);
  for (std::size_t i = 0; i < 128; ++i) x[i] = std::cos(0.3f * float(i)) + 0.01f * float(i);
  hadamard(x);
  const Row first = {7.38319969f, -0.0504578538f, -0.100630738f};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(x[i], first[i], 2e-6f);
  const Row out = fp4(x);
  EXPECT_EQ(out[0], 8.f);
  for (const std::size_t zero : {1u, 2u}) {
    EXPECT_EQ(out[zero], 0.f);
    EXPECT_TRUE(std::signbit(out[zero]));
  }
  const Row last(out.begin() + 120, out.begin() + 127);
  EXPECT_EQ(last, (Row{1, 0, 0, -0.f, 0.125f, -0.125f, -0.25f}));
}

TEST(Fp4Row, KeepsWhatItCanHoldExactly) {
  Row x(32);
  for (std::size_t i = 0; i < 32; ++i) {
    x[i] = 0.25f * e2m1_to_f32(std::uint8_t(i % 16));
  }
  EXPECT_EQ(fp4(x), x);
  EXPECT_EQ(fp4_row_bytes(128), 64u + 4);
}

TEST(Fp4Row, KeepsSmallGroupsAndRefusesWhatIsNotFinite) {
  EXPECT_EQ(fp4(Row(32, 0.f)), Row(32, 0.f));
  EXPECT_EQ(fp4(Row(32, 0x1p-149f)), Row(32, 0.f));
  std::vector<std::byte> bytes(fp4_row_bytes(32));
  for (const float bad : {std::nanf(""), kInfinity}) {
    Row row(32, 1.f);
    row[31] = bad;
    EXPECT_FALSE(encode_fp4_row(row, bytes.data()));
  }
  EXPECT_TRUE(encode_fp4_row(Row(32, std::numeric_limits<float>::max()), bytes.data()));
}

TEST(Hadamard, IsItsOwnInverseAndKeepsDotProducts) {
  Row a = random_row(128, 7), b = random_row(128, 8);
  const Row before = a;
  const auto dot = [&] {
    double sum = 0.0;
    for (std::size_t i = 0; i < 128; ++i) sum += double(a[i]) * double(b[i]);
    return sum;
  };
  const double want = dot();
  hadamard(a);
  hadamard(b);
  EXPECT_NEAR(dot(), want, 2e-5);
  hadamard(a);
  test::expect_near(a, before, {0.0, 1e-6});
}

TEST(Hadamard, OfFourIsTheTextbookMatrix) {
  Row row = {1, 2, 3, 5};
  hadamard(row);
  EXPECT_EQ(row, (Row{5.5f, -1.5f, -2.5f, 0.5f}));
  Row one = {3.f};
  hadamard(one);
  EXPECT_EQ(one, (Row{3.f}));
}

}  // namespace
}  // namespace lemma::algorithm
