// SPDX-License-Identifier: Apache-2.0
#include "weights/formats/codes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lemma::weights::formats {
namespace {

std::vector<Format> with_codes() {
  std::vector<Format> formats;
  for (const Format format : kFormats)
    if (has_codes(format)) formats.push_back(format);
  return formats;
}

std::vector<std::byte> encoded(const FormatTraits& format) {
  std::vector<float> values(format.block_elements);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(float(i * i)) * (1.f + float(i % 40) / 20.f);
  std::vector<std::byte> block(format.block_bytes);
  format.quantize(values, block.data());
  return block;
}

TEST(Codes, AreOfTheFormatsWithAnEvenGrid) {
  EXPECT_EQ(with_codes().size(), 10u);
  for (const Format format : {Format::kF16, Format::kIQ2_XXS, Format::kIQ4_NL, Format::kMXFP4})
    EXPECT_FALSE(has_codes(format)) << traits(format).name;
}

TEST(Codes, ThatAreWrittenDecodeToTheirPlaceOnTheGrid) {
  for (const Format format : with_codes()) {
    const FormatTraits& t = traits(format);
    std::vector<std::byte> block = encoded(t);
    Grid grid;
    read_grid(format, block.data(), grid);
    std::vector<std::int8_t> codes(t.block_elements);
    const int levels = grid.high - grid.low + 1;
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<std::int8_t>(grid.low + int(i * 37 + i / 7) % levels);
    write_codes(format, codes, block.data());
    std::vector<float> decoded(codes.size());
    t.dequantize(block.data(), decoded);
    for (std::size_t i = 0; i < codes.size(); ++i)
      EXPECT_EQ(decoded[i], grid.steps[i] * float(codes[i]) - grid.offsets[i])
          << t.name << " " << i;
  }
}

TEST(Codes, OfWhatWasEncodedLeaveTheBlockAsItIs) {
  for (const Format format : with_codes()) {
    const FormatTraits& t = traits(format);
    const std::vector<std::byte> block = encoded(t);
    std::vector<float> decoded(t.block_elements);
    t.dequantize(block.data(), decoded);
    Grid grid;
    read_grid(format, block.data(), grid);
    std::vector<std::int8_t> codes(t.block_elements);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float step = grid.steps[i];
      const float code = step == 0.f ? 0.f : std::round((decoded[i] + grid.offsets[i]) / step);
      ASSERT_GE(code, float(grid.low)) << t.name;
      ASSERT_LE(code, float(grid.high)) << t.name;
      codes[i] = static_cast<std::int8_t>(code);
    }
    std::vector<std::byte> again = block;
    write_codes(format, codes, again.data());
    std::vector<float> back(decoded.size());
    t.dequantize(again.data(), back);
    EXPECT_EQ(back, decoded) << t.name;
  }
}

}  // namespace
}  // namespace lemma::weights::formats
