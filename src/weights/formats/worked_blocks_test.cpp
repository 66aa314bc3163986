// SPDX-License-Identifier: Apache-2.0
// The worked blocks of the format files from Q4_1 on, as their comments write them.
#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <utility>
#include <vector>

#include "weights/format.hpp"

namespace lemma::weights {
namespace {

/// Decodes one block that is zero but for some bytes.
std::vector<float> decode(Format format,
                          std::initializer_list<std::pair<std::size_t, unsigned>> bytes) {
  const FormatTraits& t = traits(format);
  std::vector<std::byte> block(t.block_bytes);
  for (const auto& [at, value] : bytes) block[at] = static_cast<std::byte>(value);
  std::vector<float> out(t.block_elements);
  t.dequantize(block.data(), out);
  return out;
}

TEST(WorkedBlock, Q4_1) {
  const auto x = decode(Format::kQ4_1, {{1, 0x38}, {3, 0xbc}, {4, 0x73}});
  EXPECT_EQ(x[0], 0.5f);
  EXPECT_EQ(x[16], 2.5f);
}

TEST(WorkedBlock, Q5_1) {
  const auto x = decode(Format::kQ5_1, {{1, 0x38}, {3, 0xbc}, {4, 1}, {8, 0x73}});
  EXPECT_EQ(x[0], 8.5f);
  EXPECT_EQ(x[16], 2.5f);
}

TEST(WorkedBlock, Q2_K) {
  EXPECT_EQ(decode(Format::kQ2_K, {{0, 0x23}, {16, 2}, {81, 0x38}, {83, 0x34}})[0], 2.5f);
}

TEST(WorkedBlock, Q3_K) {
  EXPECT_EQ(decode(Format::kQ3_K, {{0, 1}, {32, 1}, {96, 3}, {104, 2}, {109, 0x38}})[0], 1.5f);
  EXPECT_EQ(decode(Format::kQ3_K, {{32, 1}, {96, 3}, {104, 2}, {109, 0x38}})[0], -4.5f);
}

TEST(WorkedBlock, Q5_K) {
  EXPECT_EQ(decode(Format::kQ5_K, {{1, 0x38}, {3, 0x34}, {4, 3}, {8, 2}, {16, 1}, {48, 5}})[0],
            31.f);
}

TEST(WorkedBlock, Q8_K) {
  const auto x = decode(Format::kQ8_K, {{3, 0x3f}, {4, 2}, {5, 0xfe}});
  EXPECT_EQ(x[0], 1.f);
  EXPECT_EQ(x[1], -1.f);
}

TEST(WorkedBlock, IQ1_S) {
  EXPECT_EQ(decode(Format::kIQ1_S, {{1, 0x3c}})[0], -0.875f);
}

TEST(WorkedBlock, IQ1_M) {
  EXPECT_EQ(decode(Format::kIQ1_M, {{53, 0xc0}, {55, 0x30}})[0], -0.875f);
}

/// -3, then six times 3, then `last`.
void expect_threes(const std::vector<float>& x, float last) {
  EXPECT_EQ(x[0], -3.f);
  for (std::size_t i = 1; i < 7; ++i) EXPECT_EQ(x[i], 3.f) << i;
  EXPECT_EQ(x[7], last);
}

TEST(WorkedBlock, IQ2_XXS) {
  expect_threes(decode(Format::kIQ2_XXS, {{1, 0x3c}, {6, 1}, {9, 0x10}}), -3.f);
}

TEST(WorkedBlock, IQ2_XS) {
  expect_threes(decode(Format::kIQ2_XS, {{1, 0x3c}, {3, 2}, {66, 1}}), -3.f);
}

TEST(WorkedBlock, IQ2_S) {
  expect_threes(decode(Format::kIQ2_S, {{1, 0x3c}, {34, 1}, {74, 1}}), 3.f);
}

TEST(WorkedBlock, IQ3_XXS) {
  expect_threes(decode(Format::kIQ3_XXS, {{1, 0x3c}, {66, 1}, {69, 0x10}}), -3.f);
}

TEST(WorkedBlock, IQ3_S) {
  const auto x = decode(Format::kIQ3_S, {{1, 0x38}, {74, 1}, {106, 1}});
  EXPECT_EQ(x[0], -1.5f);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(x[i], 1.5f) << i;
}

TEST(WorkedBlock, IQ4_NL) {
  const auto x = decode(Format::kIQ4_NL, {{1, 0xb8}, {2, 8}});
  EXPECT_EQ(x[0], -0.5f);
  EXPECT_EQ(x[16], 63.5f);
}

TEST(WorkedBlock, IQ4_XS) {
  const auto x = decode(Format::kIQ4_XS, {{1, 0x38}, {2, 2}, {4, 3}, {8, 0x0f}});
  EXPECT_EQ(x[0], 169.5f);
  EXPECT_EQ(x[16], -190.5f);
}

TEST(WorkedBlock, TQ1_0) {
  const auto x = decode(Format::kTQ1_0, {{0, 0xab}, {53, 0x38}});
  EXPECT_EQ(x[0], 0.5f);
  for (const std::size_t i : {32, 64, 96, 128}) EXPECT_EQ(x[i], -0.5f) << i;
}

TEST(WorkedBlock, TQ2_0) {
  const auto x = decode(Format::kTQ2_0, {{0, 2}, {65, 0x38}});
  EXPECT_EQ(x[0], 0.5f);
  for (const std::size_t i : {32, 64, 96}) EXPECT_EQ(x[i], -0.5f) << i;
}

TEST(WorkedBlock, MXFP4) {
  const auto x = decode(Format::kMXFP4, {{0, 0x80}, {1, 0xa5}});
  EXPECT_EQ(x[0], 6.f);
  EXPECT_EQ(x[16], -2.f);
}

TEST(WorkedBlock, NVFP4) {
  const auto x = decode(Format::kNVFP4, {{0, 0x40}, {4, 0xa5}});
  EXPECT_EQ(x[0], 6.f);
  EXPECT_EQ(x[8], -2.f);
}

}  // namespace
}  // namespace lemma::weights
