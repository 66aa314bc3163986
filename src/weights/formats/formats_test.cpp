// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "test_data.hpp"
#include "weights/format.hpp"
#include "weights/formats/blocks.hpp"

namespace lemma::weights {
namespace {

using Bytes = std::vector<std::byte>;

Bytes from_hex(const std::string& hex) {
  Bytes out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

std::vector<float> decode(Format format, const Bytes& bytes) {
  const FormatTraits& t = traits(format);
  std::vector<float> out(bytes.size() / t.block_bytes * t.block_elements);
  t.dequantize(bytes.data(), out);
  return out;
}

Bytes encode(Format format, const std::vector<float>& values) {
  Bytes out(row_bytes(format, values.size()));
  traits(format).quantize(values, out.data());
  return out;
}

/// Encodes, decodes and checks the promise of FormatTraits, block by block.
void expect_within_bound(Format format, const std::vector<float>& values) {
  const FormatTraits& t = traits(format);
  const std::vector<float> decoded = decode(format, encode(format, values));
  ASSERT_EQ(decoded.size(), values.size());
  for (std::size_t begin = 0; begin < values.size(); begin += t.block_elements) {
    double largest = 0;
    for (std::size_t i = begin; i < begin + t.block_elements; ++i) {
      largest = std::fmax(largest, std::fabs(values[i]));
    }
    const double bound = double{t.relative_error_bound} * largest + t.absolute_error_floor;
    for (std::size_t i = begin; i < begin + t.block_elements; ++i) {
      ASSERT_LE(std::fabs(double{values[i]} - decoded[i]), bound)
          << t.name << ": " << values[i] << " became " << decoded[i] << ", block's largest "
          << largest;
    }
  }
}

std::string format_name(const testing::TestParamInfo<Format>& info) {
  return std::string(traits(info.param).name);
}

class EveryFormat : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat, testing::ValuesIn(kFormats), format_name);

TEST_P(EveryFormat, DecodesToTheBitsOfTheGgufPackage) {
  std::ifstream file(test::source_dir() / "src/weights/formats/testdata/ggml_blocks.txt");
  std::string line;
  bool found = false;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name, bytes, bits;
    words >> name >> bytes >> bits;
    if (name != traits(GetParam()).name) continue;
    found = true;
    const std::vector<float> values = decode(GetParam(), from_hex(bytes));
    const Bytes expected = from_hex(bits);
    ASSERT_EQ(expected.size(), values.size() * sizeof(float));
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint32_t wanted;
      std::memcpy(&wanted, expected.data() + 4 * i, sizeof wanted);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), wanted) << "element " << i;
    }
  }
  EXPECT_TRUE(found) << "no blocks of this format in the fixture";
}

TEST_P(EveryFormat, DecodesARowThatStartsAtAnyByte) {
  const Bytes aligned = encode(GetParam(), std::vector<float>(512, 0.75f));
  Bytes shifted(aligned.size() + 1);
  std::memcpy(shifted.data() + 1, aligned.data(), aligned.size());
  std::vector<float> out(512);
  traits(GetParam()).dequantize(shifted.data() + 1, out);
  EXPECT_EQ(out, decode(GetParam(), aligned));
}

TEST_P(EveryFormat, KeepsZeros) {
  const std::vector<float> zeros(512, 0.f);
  EXPECT_EQ(decode(GetParam(), encode(GetParam(), zeros)), zeros);
}

TEST_P(EveryFormat, KeepsItsBoundOnRandomBlocks) {
  std::mt19937 random(7);
  for (const float scale : {1.f, 1e-3f, 0.02f, 50.f, 6000.f}) {
    if (scale > traits(GetParam()).largest_magnitude / 8) continue;
    std::normal_distribution<float> normal(0.f, scale);
    std::vector<float> values(16 * 256);
    for (float& value : values) value = normal(random);
    expect_within_bound(GetParam(), values);
  }
}

TEST_P(EveryFormat, KeepsItsBoundOnBlocksWithOneOutlier) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal(0.f, 1.f);
  for (const float outlier : {10.f, -10.f, 1000.f, -1000.f}) {
    for (std::size_t at = 0; at < 256; at += 37) {
      std::vector<float> values(256);
      for (float& value : values) value = normal(random);
      values[at] = outlier;
      expect_within_bound(GetParam(), values);
    }
  }
}

TEST_P(EveryFormat, KeepsItsBoundOnExtremesOfBothSigns) {
  std::vector<float> alternating(512), halves(512), one_sided(512), steps(512), mixed(512);
  for (std::size_t i = 0; i < 512; ++i) {
    alternating[i] = i % 2 == 0 ? 1.f : -1.f;
    halves[i] = i % 256 < 128 ? 3.f : -3.f;
    one_sided[i] = -5.f - static_cast<float>(i % 7) * 1e-3f;
    steps[i] = static_cast<float>(static_cast<int>(i % 32) - 16) / 16.f;
    // Sub-blocks of very different size: the small ones live on the block's error, not their own.
    mixed[i] = std::ldexp(i % 3 == 0 ? -1.f : 1.f, -static_cast<int>(i / 16 % 16));
  }
  for (const auto& values : {alternating, halves, one_sided, steps, mixed}) {
    expect_within_bound(GetParam(), values);
  }
}

TEST_P(EveryFormat, KeepsItsBoundFromTheSmallestNumbersToItsLargest) {
  const float largest = traits(GetParam()).largest_magnitude;
  std::mt19937 random(9);
  std::uniform_real_distribution<float> uniform(-1.f, 1.f);
  for (float scale = 1e-44f; scale < largest / 3; scale *= 3) {
    std::vector<float> values(256);
    for (float& value : values) value = uniform(random) * scale;
    expect_within_bound(GetParam(), values);
  }
  std::vector<float> values(256);
  for (float& value : values) value = uniform(random) * largest;
  values[3] = largest;
  expect_within_bound(GetParam(), values);
  values[3] = -largest;
  expect_within_bound(GetParam(), values);
}

TEST_P(EveryFormat, StaysFiniteBeyondItsLargestNumber) {
  constexpr float kMax = std::numeric_limits<float>::max();
  std::vector<float> values(256);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? kMax : -kMax;
  for (const float value : decode(GetParam(), encode(GetParam(), values))) {
    ASSERT_TRUE(std::isfinite(value));
  }
}

TEST_P(EveryFormat, RepeatsItselfOnWhatItDecoded) {
  if (traits(GetParam()).block_elements > 1) return;  // a block's scale may move once more
  std::mt19937 random(10);
  std::normal_distribution<float> normal(0.f, 1.f);
  std::vector<float> values(256);
  for (float& value : values) value = normal(random);
  const Bytes once = encode(GetParam(), values);
  EXPECT_EQ(encode(GetParam(), decode(GetParam(), once)), once);
}

TEST_P(EveryFormat, IsFoundByItsNameInAnyCase) {
  std::string name(traits(GetParam()).name);
  EXPECT_EQ(format_by_name(name), GetParam());
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  EXPECT_EQ(format_by_name(name), GetParam());
}

TEST_P(EveryFormat, HasItsEntryInTheTable) {
  EXPECT_EQ(traits(GetParam()).format, GetParam());
}

TEST(Format, HasNoFormatOfAnUnknownName) {
  EXPECT_FALSE(format_by_name("Q9_Z"));
  EXPECT_FALSE(format_by_name(""));
  EXPECT_FALSE(format_by_name("Q4"));
  EXPECT_FALSE(format_by_name("I32"));  // no format of weights
}

TEST(Format, CountsTheBytesOfARow) {
  EXPECT_EQ(row_bytes(Format::kF32, 3), 12u);
  EXPECT_EQ(row_bytes(Format::kQ8_0, 64), 68u);
  EXPECT_EQ(row_bytes(Format::kQ4_K, 512), 288u);
}

TEST(I32, DecodesWholeNumbersAndIsNotEncoded) {
  EXPECT_EQ(decode(Format::kI32, from_hex("feffffffff0000000000000100000080")),
            (std::vector<float>{-2.f, 255.f, 0x1p24f, -0x1p31f}));
  EXPECT_EQ(traits(Format::kI32).format, Format::kI32);
  EXPECT_EQ(traits(Format::kI32).encode, nullptr);
}

// The worked blocks of the format files.

TEST(Q8_0, DecodesItsWorkedBlock) {
  Bytes block = from_hex("003802fe7f");
  block.resize(34);
  const auto x = decode(Format::kQ8_0, block);
  EXPECT_EQ(x[0], 1.f);
  EXPECT_EQ(x[1], -1.f);
  EXPECT_EQ(x[2], 63.5f);
  EXPECT_EQ(x[3], 0.f);
}

TEST(Q4_0, DecodesItsWorkedBlock) {
  Bytes block = from_hex("00b89088");
  block.resize(18);
  const auto x = decode(Format::kQ4_0, block);
  EXPECT_EQ(x[0], 4.f);
  EXPECT_EQ(x[16], -0.5f);
  EXPECT_EQ(x[1], 0.f);
  EXPECT_EQ(x[17], 0.f);
}

TEST(Q5_0, DecodesItsWorkedBlock) {
  Bytes block = from_hex("00b80100010090");
  block.resize(22);
  const auto x = decode(Format::kQ5_0, block);
  EXPECT_EQ(x[0], 0.f);
  EXPECT_EQ(x[16], -4.5f);
}

TEST(Q4_K, DecodesItsWorkedBlock) {
  Bytes block = from_hex(
      "00380034030000000200000000000000"
      "05");
  block.resize(144);
  EXPECT_EQ(decode(Format::kQ4_K, block)[0], 7.f);
}

TEST(Q4_K, UnpacksTheScalesOfBothHalves) {
  // s = 1, 2, 3, 4, 33, 34, 35, 63 and m = 5, 6, 7, 8, 49, 50, 51, 62, packed by hand.
  const std::uint8_t scales[12] = {0x81, 0x82, 0x83, 0xc4, 0xc5, 0xc6,
                                   0xc7, 0xc8, 0x11, 0x22, 0x33, 0xef};
  const int s[8] = {1, 2, 3, 4, 33, 34, 35, 63}, m[8] = {5, 6, 7, 8, 49, 50, 51, 62};
  for (std::size_t j = 0; j < 8; ++j) {
    EXPECT_EQ(unpack_scale_min(scales, j).scale, s[j]) << j;
    EXPECT_EQ(unpack_scale_min(scales, j).min, m[j]) << j;
  }
}

TEST(Q6_K, DecodesItsWorkedBlock) {
  Bytes block(210);
  block[0] = std::byte{0x01};
  block[128] = std::byte{0x03};
  block[192] = std::byte{2};
  block[209] = std::byte{0x38};
  EXPECT_EQ(decode(Format::kQ6_K, block)[0], 17.f);
}

}  // namespace
}  // namespace lemma::weights
