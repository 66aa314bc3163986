// SPDX-License-Identifier: Apache-2.0
// Packed forms against values that can be checked by hand.
#include "weights/safetensors/packed.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lemma/error.hpp"

namespace lemma::weights::safetensors {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

/// A stored tensor over values of the test.
template <typename T>
Stored stored(const std::string& dtype, std::vector<std::uint64_t> shape,
              const std::vector<T>& values) {
  return {dtype + " of the test", dtype, std::move(shape), std::as_bytes(std::span(values))};
}

Source numbers(std::vector<std::uint64_t> shape, std::vector<float> values) {
  return reshape(constant("scales", std::move(values)), std::move(shape));
}

TEST(Packed, DecodesE4m3) {
  // 1, 448, -0.5, the smallest subnormal, the smallest normal, 0.
  const std::vector<std::uint8_t> bytes = {0x38, 0x7e, 0xb0, 0x01, 0x08, 0x00};
  const Source out = decode_fp8(stored("F8_E4M3", {6}, bytes));
  EXPECT_EQ(out.format, Format::kBF16);
  EXPECT_THAT(out.values(), ElementsAre(1.f, 448.f, -0.5f, 0x1p-9f, 0x1p-6f, 0.f));
}

TEST(Packed, DecodesE5m2) {
  const std::vector<std::uint8_t> bytes = {0x3c, 0x7b, 0xb8, 0x01};
  EXPECT_THAT(decode_fp8(stored("F8_E5M2", {4}, bytes)).values(),
              ElementsAre(1.f, 57344.f, -0.5f, 0x1p-16f));
}

TEST(Packed, ScalesE4m3ByTilesThatTheEdgesCut) {
  // 3 x 5 ones in tiles of 2 x 2: 2 x 3 scales.
  const std::vector<std::uint8_t> ones(15, 0x38);
  const Stored weight = stored("F8_E4M3", {3, 5}, ones);
  const std::vector<float> scales = {1, 2, 3, 4, 5, 6};
  EXPECT_THAT(decode_fp8(weight, numbers({2, 3}, scales), 2, 2).values(),
              ElementsAre(1, 1, 2, 2, 3, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6));
  EXPECT_THAT(decode_fp8(weight, numbers({1}, {2}), 2, 2).values(), ::testing::Each(2.f));
  EXPECT_THAT(decode_fp8(weight, numbers({3, 1}, {1, 2, 3}), 2, 2).values(),
              ElementsAre(1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3));
  EXPECT_THROW(decode_fp8(weight, numbers({2, 2}, {1, 2, 3, 4}), 2, 2), Error);
}

TEST(Packed, DecodesMxfp4FromTheLowNibbleOn) {
  std::vector<std::uint8_t> blocks(16, 0);
  blocks[0] = 0x21;                                // 0.5, then 1
  blocks[1] = 0xf7;                                // 6, then -6
  const std::vector<std::uint8_t> scales = {128};  // times 2
  blocks[15] = 0x10;                               // 0, then 0.5
  const Source out = decode_mxfp4(stored("U8", {1, 1, 16}, blocks), stored("U8", {1, 1}, scales));
  EXPECT_EQ(out.format, Format::kMXFP4);
  EXPECT_EQ(out.size_bytes(), 17u);
  const std::vector<float> values = out.values();
  ASSERT_EQ(values.size(), 32u);
  EXPECT_EQ(values[31], 1.f);
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 5),
              ElementsAre(1.f, 2.f, 12.f, -12.f, 0.f));
}

TEST(Packed, RefusesMxfp4WithoutAScaleForEachBlock) {
  const std::vector<std::uint8_t> blocks(32), scales(1);
  EXPECT_THROW(decode_mxfp4(stored("U8", {2, 16}, blocks), stored("U8", {1}, scales)), Error);
}

// 16 inputs in two groups of 8, 8 outputs. Code of input i, output o: (3 i + o) mod 16.
struct Matrix4 {
  static constexpr std::uint32_t kInputs = 16, kOutputs = 8;
  static std::uint32_t code(std::uint32_t i, std::uint32_t o) { return (3 * i + o) % 16; }
  static std::uint32_t zero(std::uint32_t group, std::uint32_t o) { return (group + o) % 15; }
  static float scale(std::uint32_t group, std::uint32_t o) {
    return std::ldexp(1.f + static_cast<float>(o), -static_cast<int>(group));
  }
  static std::vector<float> scales() {
    std::vector<float> out;
    for (std::uint32_t g = 0; g < 2; ++g)
      for (std::uint32_t o = 0; o < kOutputs; ++o) out.push_back(scale(g, o));
    return out;
  }
  /// [out, in], with the group of each input.
  static std::vector<float> expected(const std::vector<std::uint32_t>& group,
                                     std::uint32_t offset) {
    std::vector<float> out;
    for (std::uint32_t o = 0; o < kOutputs; ++o)
      for (std::uint32_t i = 0; i < kInputs; ++i)
        out.push_back(
            (static_cast<float>(code(i, o)) - static_cast<float>(zero(group[i], o) + offset)) *
            scale(group[i], o));
    return out;
  }
};

std::vector<std::uint32_t> gptq_words() {
  std::vector<std::uint32_t> words(Matrix4::kInputs / 8 * Matrix4::kOutputs);
  for (std::uint32_t i = 0; i < Matrix4::kInputs; ++i)
    for (std::uint32_t o = 0; o < Matrix4::kOutputs; ++o)
      words[i / 8 * Matrix4::kOutputs + o] |= Matrix4::code(i, o) << 4 * (i % 8);
  return words;
}

std::vector<std::uint32_t> gptq_zeros() {
  std::vector<std::uint32_t> words(2);
  for (std::uint32_t g = 0; g < 2; ++g)
    for (std::uint32_t o = 0; o < Matrix4::kOutputs; ++o) words[g] |= Matrix4::zero(g, o) << 4 * o;
  return words;
}

TEST(Packed, DecodesGptqByGroupsOfInputs) {
  const auto words = gptq_words(), zeros = gptq_zeros();
  const Stored weight = stored("I32", {2, 8}, words), zero = stored("I32", {2, 1}, zeros);
  std::vector<std::uint32_t> group(16);
  for (std::uint32_t i = 0; i < 16; ++i) group[i] = i / 8;
  const Source scales = numbers({2, 8}, Matrix4::scales());
  for (const std::uint32_t offset : {0u, 1u}) {
    const PackedMatrix packed{
        .weight = &weight, .zeros = &zero, .group_size = 8, .zero_offset = offset};
    const Source out = decode_gptq(packed, scales);
    EXPECT_EQ(out.shape, (std::vector<std::uint64_t>{8, 16}));
    EXPECT_THAT(out.values(), ElementsAreArray(Matrix4::expected(group, offset)));
  }
}

TEST(Packed, DecodesGptqInAnOrderOfItsOwn) {
  const auto words = gptq_words(), zeros = gptq_zeros();
  const Stored weight = stored("I32", {2, 8}, words), zero = stored("I32", {2, 1}, zeros);
  std::vector<std::uint32_t> group(16);
  for (std::uint32_t i = 0; i < 16; ++i) group[i] = i * 7 % 2;
  const Stored order = stored("I32", {16}, group);
  PackedMatrix packed{.weight = &weight, .zeros = &zero, .groups = &order, .group_size = 8};
  const Source scales = numbers({2, 8}, Matrix4::scales());
  EXPECT_THAT(decode_gptq(packed, scales).values(), ElementsAreArray(Matrix4::expected(group, 0)));
  group[3] = 2;  // there are two groups
  EXPECT_THROW(decode_gptq(packed, scales), Error);
}

TEST(Packed, DecodesAwqWhoseOutputsAreShuffled) {
  constexpr std::uint32_t kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};  // by nibble, from the lowest
  std::vector<std::uint32_t> words(16), zeros(2);
  for (std::uint32_t n = 0; n < 8; ++n) {
    for (std::uint32_t i = 0; i < 16; ++i) words[i] |= Matrix4::code(i, kOrder[n]) << 4 * n;
    for (std::uint32_t g = 0; g < 2; ++g) zeros[g] |= Matrix4::zero(g, kOrder[n]) << 4 * n;
  }
  const Stored weight = stored("I32", {16, 1}, words), zero = stored("I32", {2, 1}, zeros);
  std::vector<std::uint32_t> group(16);
  for (std::uint32_t i = 0; i < 16; ++i) group[i] = i / 8;
  const PackedMatrix packed{.weight = &weight, .zeros = &zero, .group_size = 8};
  EXPECT_THAT(decode_awq(packed, numbers({2, 8}, Matrix4::scales())).values(),
              ElementsAreArray(Matrix4::expected(group, 0)));
}

TEST(Packed, RefusesScalesOfAnotherShape) {
  const auto words = gptq_words(), zeros = gptq_zeros();
  const Stored weight = stored("I32", {2, 8}, words), zero = stored("I32", {2, 1}, zeros);
  const PackedMatrix packed{.weight = &weight, .zeros = &zero, .group_size = 4};
  EXPECT_THROW(decode_gptq(packed, numbers({2, 8}, Matrix4::scales())), Error);
}

TEST(Packed, DecodesBiasedCodesInRows) {
  const std::vector<std::uint32_t> words = {0x76543210u, 0xfedcba98u};
  const Stored packed = stored("I32", {2, 1}, words);
  EXPECT_THAT(decode_packed_rows(packed, numbers({2, 2}, {1, 2, 3, 4}), 4, 8).values(),
              ElementsAre(-8, -7, -6, -5, -8, -6, -4, -2, 0, 3, 6, 9, 16, 20, 24, 28));
}

}  // namespace
}  // namespace lemma::weights::safetensors
