// SPDX-License-Identifier: Apache-2.0
// What the encoders are worth: near the best for normal weights, better where importance says so,
// and the coverings that the error bounds of the IQ formats are argued with.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "weights/format.hpp"
#include "weights/formats/grids.hpp"

namespace lemma::weights {
namespace {

std::vector<float> normal_weights(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.f, 0.02f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> through(Format format, const std::vector<float>& values,
                           const float* importance = nullptr) {
  std::vector<std::byte> bytes(row_bytes(format, values.size()));
  std::vector<float> decoded(values.size());
  traits(format).quantize(values, bytes.data(), importance);
  traits(format).dequantize(bytes.data(), decoded);
  return decoded;
}

/// Root of the weighted mean squared error, relative to the values' own.
double relative_rms(const std::vector<float>& values, const std::vector<float>& decoded,
                    const std::vector<float>& importance) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    error += importance[i] * std::pow(double{values[i]} - decoded[i], 2);
    power += importance[i] * std::pow(double{values[i]}, 2);
  }
  return std::sqrt(error / power);
}

/// What an encoder weighs errors by without importance: the root of v + x^2, v the row's mean
/// square.
std::vector<float> own_weighing(const std::vector<float>& values) {
  double power = 0;
  for (const float x : values) power += double{x} * x / double(values.size());
  std::vector<float> weights;
  for (const float x : values)
    weights.push_back(static_cast<float>(std::sqrt(1 + double{x} * x / power)));
  return weights;
}

std::string format_name(const testing::TestParamInfo<Format>& info) {
  return std::string(traits(info.param).name);
}

class EveryEncoder : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Formats, EveryEncoder, testing::ValuesIn(kFormats), format_name);

// A quantizer for its bits can do no better than rate-distortion theory allows (2^-bits of the
// deviation, reached by none); these ceilings are what ours reach, rounded up by less than 2 %.
// The plain encodings, without a search, would reach 9.7 % (Q4_0), 4.5 % (Q5_0), 8.0 % (Q4_K) and
// 2.0 % (Q6_K). NVFP4 has no scale fine enough for weights of 0.02. Equal importance lets all
// errors count alike.
TEST_P(EveryEncoder, ComesNearTheBestOfNormalWeights) {
  const std::map<std::string_view, double> ceilings = {
      {"F32", 0},         {"F16", 0.000209},  {"BF16", 0.00168},  {"Q8_0", 0.00486},
      {"Q4_0", 0.0826},   {"Q4_K", 0.0709},   {"Q6_K", 0.0174},   {"Q5_0", 0.0405},
      {"Q4_1", 0.0710},   {"Q5_1", 0.0339},   {"Q2_K", 0.263},    {"Q3_K", 0.144},
      {"Q5_K", 0.0348},   {"Q8_K", 0.00700},  {"IQ1_S", 0.450},   {"IQ1_M", 0.416},
      {"IQ2_XXS", 0.332}, {"IQ2_XS", 0.287},  {"IQ2_S", 0.241},   {"IQ3_XXS", 0.179},
      {"IQ3_S", 0.130},   {"IQ4_NL", 0.0735}, {"IQ4_XS", 0.0739}, {"TQ1_0", 0.439},
      {"TQ2_0", 0.439},   {"MXFP4", 0.113},   {"NVFP4", 0.102}};
  const auto ceiling = ceilings.find(traits(GetParam()).name);
  ASSERT_NE(ceiling, ceilings.end());
  const std::vector<float> values = normal_weights(64 * 256, 11), ones(values.size(), 1.f);
  const std::vector<float> decoded = through(GetParam(), values, ones.data());
  EXPECT_LE(relative_rms(values, decoded, ones), ceiling->second);
}

// Without importance the errors of large weights count more than least squares lets them.
TEST_P(EveryEncoder, SparesTheLargeWeights) {
  constexpr std::array kFixed = {Format::kF32, Format::kF16, Format::kBF16, Format::kQ8_K};
  if (std::find(kFixed.begin(), kFixed.end(), GetParam()) != kFixed.end()) return;
  const std::vector<float> values = normal_weights(64 * 256, 17), ones(values.size(), 1.f);
  const std::vector<float> own = own_weighing(values);
  EXPECT_LT(relative_rms(values, through(GetParam(), values), own),
            relative_rms(values, through(GetParam(), values, ones.data()), own));
}

TEST_P(EveryEncoder, SpendsItsErrorWhereImportanceIsSmall) {
  const std::vector<float> values = normal_weights(32 * 256, 12);
  std::mt19937 random(13);
  std::uniform_real_distribution<float> uniform(0.f, 1.f);
  std::vector<float> importance(values.size());
  for (float& w : importance) w = 10.f * std::pow(uniform(random), 4.f);
  const double with =
      relative_rms(values, through(GetParam(), values, importance.data()), importance);
  const double without = relative_rms(values, through(GetParam(), values), importance);
  // These have nothing to choose: a rounding for each element, or a scale that must reach.
  constexpr std::array kFixed = {Format::kF32, Format::kF16, Format::kBF16, Format::kQ8_K};
  const bool fixed = std::find(kFixed.begin(), kFixed.end(), GetParam()) != kFixed.end();
  if (fixed) {
    EXPECT_EQ(with, without);
  } else {
    EXPECT_LT(with, 0.997 * without);
  }
}

TEST_P(EveryEncoder, KeepsItsBoundWithAnyImportance) {
  const FormatTraits& t = traits(GetParam());
  const std::vector<float> values = normal_weights(32 * 256, 14);
  std::mt19937 random(15);
  std::uniform_real_distribution<float> uniform(-12.f, 0.f);
  std::vector<float> importance(values.size());
  for (float& w : importance) w = std::exp2(uniform(random));
  for (std::size_t i = 0; i < 256; ++i) importance[i] = 0.f;  // never seen
  importance[300] = 1e30f;
  const std::vector<float> decoded = through(GetParam(), values, importance.data());
  for (std::size_t begin = 0; begin < values.size(); begin += t.block_elements) {
    double largest = 0, sum = 0;
    for (std::size_t i = begin; i < begin + t.block_elements; ++i) {
      largest = std::fmax(largest, std::fabs(values[i]));
      sum += importance[i];
    }
    const double bound = double{t.relative_error_bound} * largest + t.absolute_error_floor;
    for (std::size_t i = begin; i < begin + t.block_elements; ++i) {
      const double part = sum > 0 ? double{importance[i]} * t.block_elements / sum : 1;
      const double allowed = bound / std::sqrt(std::clamp(part, 1e-3, 1.0)) * (1 + 1e-6);
      ASSERT_LE(std::fabs(double{values[i]} - decoded[i]), allowed) << t.name << " " << i;
    }
  }
}

// Importance alone decides where it is given; equal ones, of any size, are plain least squares.
TEST_P(EveryEncoder, TakesOnlyRatiosOfImportance) {
  const std::vector<float> values = normal_weights(4 * 256, 16);
  const std::vector<float> ones(values.size(), 1.f), fours(values.size(), 4.f);
  EXPECT_EQ(through(GetParam(), values, fours.data()), through(GetParam(), values, ones.data()));
}

// iq2_s.cpp's bound: whichever magnitudes are called small, a point has its lowest level there and
// a higher one elsewhere.
TEST(IQ2_S, HasAPointForEveryChoiceOfSmallMagnitudes) {
  std::array<bool, 256> found{};
  for (const std::uint16_t point : formats::kIQ2_SGrid) {
    unsigned large = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      if (formats::level_of<3>(point, i) > 0) large |= 1u << i;
    }
    found[large] = true;
  }
  EXPECT_EQ(std::count(found.begin(), found.end(), true), 256);
}

// iq3_s.cpp's bound: whatever four neighbouring levels are wanted at each coordinate.
TEST(IQ3_S, HasAPointInEveryWindowOfFourLevels) {
  for (std::size_t window = 0; window < 5 * 5 * 5 * 5; ++window) {
    const std::size_t first[] = {window % 5, window / 5 % 5, window / 25 % 5, window / 125};
    const bool found = std::any_of(formats::kIQ3_SGrid.begin(), formats::kIQ3_SGrid.end(),
                                   [&](std::uint16_t point) {
                                     for (std::size_t i = 0; i < 4; ++i) {
                                       const std::size_t level = formats::level_of<8>(point, i);
                                       if (level < first[i] || level > first[i] + 3) return false;
                                     }
                                     return true;
                                   });
    EXPECT_TRUE(found) << window;
  }
}

// The bounds of the formats with even signs.
TEST(Grids, HoldThePointOfLeastMagnitudes) {
  EXPECT_EQ(std::count(formats::kIQ2_XXSGrid.begin(), formats::kIQ2_XXSGrid.end(), 0), 1);
  EXPECT_EQ(std::count(formats::kIQ2_XSGrid.begin(), formats::kIQ2_XSGrid.end(), 0), 1);
  EXPECT_EQ(std::count(formats::kIQ3_XXSGrid.begin(), formats::kIQ3_XXSGrid.end(), 0), 1);
}

TEST(Grids, HoldNoPointTwice) {
  const auto distinct = [](auto grid) {
    std::sort(grid.begin(), grid.end());
    return std::adjacent_find(grid.begin(), grid.end()) == grid.end();
  };
  EXPECT_TRUE(distinct(formats::kIQ1Grid));
  EXPECT_TRUE(distinct(formats::kIQ2_XXSGrid));
  EXPECT_TRUE(distinct(formats::kIQ2_XSGrid));
  EXPECT_TRUE(distinct(formats::kIQ2_SGrid));
  EXPECT_TRUE(distinct(formats::kIQ3_XXSGrid));
  EXPECT_TRUE(distinct(formats::kIQ3_SGrid));
}

TEST(EvenSigns, MakeTheNumberOfSignsEven) {
  EXPECT_EQ(formats::even_signs(0), 0);
  EXPECT_EQ(formats::even_signs(1), 0x81);
  EXPECT_EQ(formats::even_signs(3), 3);
  EXPECT_EQ(formats::even_signs(127), 0xff);
}

TEST(Ternary, KeepsWeightsThatAreTernary) {
  std::vector<float> values(256);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.375f * static_cast<float>(static_cast<int>(i * 7 % 3) - 1);
  }
  EXPECT_EQ(through(Format::kTQ1_0, values), values);
  EXPECT_EQ(through(Format::kTQ2_0, values), values);
}

}  // namespace
}  // namespace lemma::weights
