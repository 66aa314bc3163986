// SPDX-License-Identifier: Apache-2.0
#include "algorithm/row_formats.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "algorithm/fp_formats.hpp"
#include "base/half.hpp"

namespace lemma::algorithm {
namespace {

using Row = std::vector<float>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr RowFormat kAll[] = {RowFormat::kF32, RowFormat::kF16, RowFormat::kBF16, RowFormat::kQ8};

std::vector<std::byte> encoded(RowFormat format, std::size_t group, const Row& row) {
  std::vector<std::byte> bytes(row_format_bytes(format, row.size(), group));
  EXPECT_TRUE(encode_row(format, group, row, bytes.data()));
  return bytes;
}

Row decoded(RowFormat format, std::size_t group, std::size_t width,
            const std::vector<std::byte>& bytes) {
  Row row(width);
  decode_row(format, group, width, bytes.data(), 0, row);
  return row;
}

Row round_trip(RowFormat format, std::size_t group, const Row& row) {
  return decoded(format, group, row.size(), encoded(format, group, row));
}

bool accepts(RowFormat format, const Row& row) {
  std::vector<std::byte> bytes(row_format_bytes(format, row.size(), row.size()));
  return encode_row(format, row.size(), row, bytes.data());
}

int code_at(const std::vector<std::byte>& bytes, std::size_t i) {
  return static_cast<std::int8_t>(bytes[i]);
}

float scale_at(const std::vector<std::byte>& bytes, std::size_t width, std::size_t group) {
  std::uint16_t bits;
  std::memcpy(&bits, bytes.data() + width + 2 * group, 2);
  return base::f16_to_f32(bits);
}

Row random_row(std::size_t n, unsigned seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.f, scale);
  Row row(n);
  for (float& value : row) value = normal(generator);
  return row;
}

// Published rows: x[i] = 3 sin(0.1 i), 512 wide with a tail of 64, and cos(0.3 i) + 0.01 i, 128
// wide behind its Hadamard transform.
TEST(RowFormats, HoldThePublishedRowOfALatentInFp8) {
  Row x(512);
  for (std::size_t i = 0; i < 512; ++i) x[i] = 3.f * std::sin(0.1f * float(i));
  std::vector<std::byte> bytes(row_format_bytes(RowFormat::kFp8, 512, 32, 64));
  EXPECT_EQ(bytes.size(), 583u);
  ASSERT_TRUE(encode_row(RowFormat::kFp8, 32, x, bytes.data(), 64));
  Row out(512);
  decode_row(RowFormat::kFp8, 32, 512, bytes.data(), 0, out, 64);
  EXPECT_EQ(Row(out.begin(), out.begin() + 8),
            (Row{0, 0.3125f, 0.625f, 0.875f, 1.125f, 1.5f, 1.75f, 1.875f}));
  double sum = 0;  // the published sum has the tail as it came; here it is f16
  for (std::size_t i = 0; i < 512; ++i) sum += double(i < 448 ? out[i] : x[i]) * double(i + 1);
  EXPECT_NEAR(sum, -9541.75435, 1e-3);
  for (std::size_t i = 448; i < 512; ++i)
    EXPECT_EQ(out[i], base::f16_to_f32(base::f32_to_f16(x[i])));
}

TEST(RowFormats, HoldThePublishedIndexRowInFp4AndTurnItBack) {
  Row x(128);
  for (std::size_t i = 0; i < 128; ++i) x[i] = std::cos(0.3f * float(i)) + 0.01f * float(i);
  std::vector<std::byte> bytes(row_format_bytes(RowFormat::kFp4, 128, 32));
  EXPECT_EQ(bytes.size(), 68u);
  ASSERT_TRUE(encode_row(RowFormat::kFp4, 32, x, bytes.data()));
  Row out(128);
  decode_row(RowFormat::kFp4, 32, 128, bytes.data(), 0, out);
  hadamard(out);  // to where the published row stands
  const Row first = {8, 0, 0}, last = {1, 0, 0, 0, 0.125f, -0.125f, -0.25f};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(out[i], first[i], 4e-6f);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_NEAR(out[120 + i], last[i], 4e-6f);
}

TEST(RowFormats, RefuseWhatFp8AndFp4CannotHold) {
  Row x(128, 1.f);
  std::vector<std::byte> bytes(row_format_bytes(RowFormat::kFp8, 128, 32, 64));
  EXPECT_TRUE(encode_row(RowFormat::kFp8, 32, x, bytes.data(), 64));
  x[127] = 1e5f;  // in the tail, which is f16
  EXPECT_FALSE(encode_row(RowFormat::kFp8, 32, x, bytes.data(), 64));
  x[127] = kInfinity;
  EXPECT_FALSE(encode_row(RowFormat::kFp4, 32, x, bytes.data()));
  x.assign(128, std::numeric_limits<float>::max());  // its Hadamard transform overflows
  EXPECT_FALSE(encode_row(RowFormat::kFp4, 32, x, bytes.data()));
}

TEST(RowFormat, HasItsBytes) {
  EXPECT_EQ(row_format_bytes(RowFormat::kF32, 512, 64), 2048u);
  EXPECT_EQ(row_format_bytes(RowFormat::kF16, 512, 64), 1024u);
  EXPECT_EQ(row_format_bytes(RowFormat::kBF16, 512, 64), 1024u);
  // A latent of 512 in q8 with groups of 64 and 64 rotated dims in f16; and a small one.
  EXPECT_EQ(row_format_bytes(RowFormat::kQ8, 512, 64) + row_format_bytes(RowFormat::kF16, 64, 64),
            656u);
  EXPECT_EQ(row_format_bytes(RowFormat::kQ8, 8, 4) + row_format_bytes(RowFormat::kF16, 4, 4), 20u);
  for (const RowFormat format : kAll) EXPECT_EQ(row_format_bytes(format, 0, 32), 0u);
}

TEST(RowFormat, GoesByItsName) {
  for (const RowFormat format : kAll) EXPECT_EQ(row_format_by_name(to_string(format)), format);
  EXPECT_EQ(to_string(RowFormat::kBF16), "bf16");
  EXPECT_EQ(row_format_by_name("q4"), std::nullopt);
  EXPECT_EQ(row_format_by_name(""), std::nullopt);
}

TEST(RowFormat, F32KeepsEveryBit) {
  const Row row = {0.f, -0.f, 1e-42f, 3.4e38f, -1.0000001f};
  const Row back = round_trip(RowFormat::kF32, 32, row);
  EXPECT_EQ(std::memcmp(back.data(), row.data(), row.size() * 4), 0);
}

TEST(RowFormat, F16RoundsToNearestEvenAndRefusesWhatDoesNotFit) {
  EXPECT_EQ(round_trip(RowFormat::kF16, 32, {1.f, 1.f + 0x1p-11f, 1.f + 0x1.8p-10f, 65504.f}),
            (Row{1.f, 1.f, 1.f + 0x1p-9f, 65504.f}));
  EXPECT_TRUE(accepts(RowFormat::kF16, {-65504.f}));
  EXPECT_FALSE(accepts(RowFormat::kF16, {65505.f}));
  EXPECT_FALSE(accepts(RowFormat::kF16, {0.f, -1e5f}));
}

TEST(RowFormat, BF16HoldsTheRangeOfF32) {
  EXPECT_EQ(round_trip(RowFormat::kBF16, 32, {1.f + 0x1p-8f, 1.f + 0x1.8p-7f, 1e5f}),
            (Row{1.f, 1.f + 0x1p-6f, 99840.f}));
  EXPECT_TRUE(accepts(RowFormat::kBF16, {0x1.fep127f}));
  EXPECT_FALSE(accepts(RowFormat::kBF16, {std::numeric_limits<float>::max()}));
}

TEST(RowFormat, RefusesWhatIsNotFinite) {
  for (const RowFormat format : kAll) {
    for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
      EXPECT_FALSE(accepts(format, {1.f, bad, 2.f, 3.f})) << to_string(format);
    }
  }
}

TEST(RowFormatQ8, RoundsAGroupOfFour) {
  const auto bytes = encoded(RowFormat::kQ8, 4, {1.f, -0.5f, 0.25f, 0.f});
  EXPECT_EQ(scale_at(bytes, 4, 0), 0.00787353515625f);
  const int want[] = {127, -64, 32, 0};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(code_at(bytes, i), want[i]);
  EXPECT_EQ(decoded(RowFormat::kQ8, 4, 4, bytes),
            (Row{0.99993896484375f, -0.50390625f, 0.251953125f, 0.f}));
}

TEST(RowFormatQ8, RoundsHalvesAwayFromZero) {
  // The scale is exactly 1, so 2.5 lies half-way between codes.
  const auto bytes = encoded(RowFormat::kQ8, 4, {127.f, 2.5f, -2.5f, 3.5f});
  const int want[] = {127, 3, -3, 4};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(code_at(bytes, i), want[i]);
}

TEST(RowFormatQ8, LaysAllCodesBeforeAllScales) {
  const auto bytes = encoded(RowFormat::kQ8, 2, {127.f, 1.f, 254.f, 2.f});
  ASSERT_EQ(bytes.size(), 8u);
  const int want[] = {127, 1, 127, 1};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(code_at(bytes, i), want[i]);
  EXPECT_EQ(scale_at(bytes, 4, 0), 1.f);
  EXPECT_EQ(scale_at(bytes, 4, 1), 2.f);
}

TEST(RowFormatQ8, StoresAGroupWithoutAScaleAsZeros) {
  for (const Row& row : {Row{0, 0}, Row{1e-8f, -1e-8f}}) {
    const auto bytes = encoded(RowFormat::kQ8, 2, row);
    EXPECT_EQ(scale_at(bytes, 2, 0), 1.f);
    EXPECT_EQ(decoded(RowFormat::kQ8, 2, 2, bytes), (Row{0, 0}));
  }
}

TEST(RowFormatQ8, RefusesAScaleThatF16CannotHold) {
  EXPECT_TRUE(accepts(RowFormat::kQ8, {65504.f * 127.f, 0.f}));
  EXPECT_FALSE(accepts(RowFormat::kQ8, {65505.f * 127.f, 0.f}));
}

TEST(RowFormatQ8, StaysWithinItsBound) {
  for (const float size : {1e-3f, 0.05f, 1.f, 30.f, 1e4f}) {  // the smallest has subnormal scales
    const Row row = random_row(64 * 32, 7, size);
    const auto bytes = encoded(RowFormat::kQ8, 32, row);
    const Row back = decoded(RowFormat::kQ8, 32, row.size(), bytes);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double scale = double(scale_at(bytes, row.size(), i / 32));
      const double slack = scale < 0x1p-14 ? 127.0 * 0x1p-25 : 0.0;
      EXPECT_LE(std::abs(double(row[i]) - double(back[i])), 0.501 * scale + slack) << row[i];
    }
  }
}

TEST(RowFormatQ8, GivesADecodedRowBackUnchanged) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto bytes = encoded(RowFormat::kQ8, 32, random_row(256, seed, 1.f));
    const Row once = decoded(RowFormat::kQ8, 32, 256, bytes);
    EXPECT_EQ(encoded(RowFormat::kQ8, 32, once), bytes) << seed;
  }
}

TEST(RowFormat, DecodesAnyPartOfARowAsThatPartOfTheWhole) {
  const Row row = random_row(128, 3, 1.f);
  for (const RowFormat format : kAll) {
    const auto bytes = encoded(format, 32, row);
    const Row whole = decoded(format, 32, 128, bytes);
    for (std::size_t begin = 0; begin < 128; begin += 32) {
      Row part(std::min<std::size_t>(64, 128 - begin));
      decode_row(format, 32, 128, bytes.data(), begin, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + std::ptrdiff_t(begin)));
    }
  }
}

}  // namespace
}  // namespace lemma::algorithm
