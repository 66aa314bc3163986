// SPDX-License-Identifier: Apache-2.0
#include "algorithm/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "algorithm/tolerance.hpp"
#include "lemma/error.hpp"

namespace lemma::algorithm {
namespace {

using Row = std::vector<float>;

struct Angles {
  Row cos, sin;
};

Angles angles_at(const RopeTable& table, const RopePosition& position) {
  Angles a{Row(table.inv_freq().size()), Row(table.inv_freq().size())};
  table.angles(position, a.cos, a.sin);
  return a;
}

RopePosition at(std::int32_t p) {
  return {p, p, p};
}

Row rotated(const RopeSpec& spec, const RopePosition& position, Row head, bool inverse = false) {
  const Angles a = angles_at(RopeTable(spec), position);
  rotate(spec, a.cos, a.sin, inverse, head);
  return head;
}

Row ramp(std::size_t n) {
  Row row(n);
  for (std::size_t i = 0; i < n; ++i) row[i] = float(std::sin(1.0 + 0.7 * double(i)));
  return row;
}

double dot(const Row& a, const Row& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * double(b[i]);
  return sum;
}

std::vector<RopeSpec> both_layouts_and_placements() {
  std::vector<RopeSpec> specs;
  for (const auto layout : {RopeLayout::kSplitHalf, RopeLayout::kInterleaved}) {
    for (const auto placement : {RopePlacement::kPrefix, RopePlacement::kSuffix}) {
      specs.push_back({.rotary_dim = 8, .layout = layout, .placement = placement});
    }
  }
  return specs;
}

TEST(Rope, RotatesSplitHalfPairs) {
  Row head = {1, 2, 3, 4};
  rotate({.rotary_dim = 4}, Row{0, 0}, Row{1, 1}, false, head);
  EXPECT_EQ(head, (Row{-3, -4, 1, 2}));
}

TEST(Rope, RotatesInterleavedPairs) {
  Row head = {1, 2, 3, 4};
  rotate({.rotary_dim = 4, .layout = RopeLayout::kInterleaved}, Row{0, 0}, Row{1, 1}, false, head);
  EXPECT_EQ(head, (Row{-2, 1, -4, 3}));
}

TEST(Rope, TurnsBackByTheInverse) {
  Row head = {1, 2, 3, 4};
  rotate({.rotary_dim = 4}, Row{0, 0}, Row{1, 1}, true, head);
  EXPECT_EQ(head, (Row{3, 4, -1, -2}));
  for (const RopeSpec& spec : both_layouts_and_placements()) {
    const Row x = ramp(12), there = rotated(spec, at(1000), x);
    EXPECT_NE(there, x);
    const Row back = rotated(spec, at(1000), there, true);
    const Row back_by_sign = rotated(spec, at(-1000), there);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(back[i], x[i], 1e-6);
      EXPECT_NEAR(back_by_sign[i], x[i], 1e-6);
    }
  }
}

TEST(Rope, KeepsTheBitsOfDimsOutsideTheRotaryPart) {
  for (const RopeSpec& spec : both_layouts_and_placements()) {
    Row x = ramp(12);
    const Row y = rotated(spec, at(5), x);
    const std::size_t unturned = spec.placement == RopePlacement::kPrefix ? 8 : 0;
    for (std::size_t i = 0; i < 12; ++i) {
      const bool outside = i >= unturned && i < unturned + 4;
      EXPECT_EQ(y[i] == x[i], outside) << i;
    }
  }
}

TEST(Rope, MakesScoresDependOnTheDistanceAlone) {
  for (const RopeSpec& spec : both_layouts_and_placements()) {
    const Row q = ramp(8), k = {1, -1, 2, 0.5f, -0.25f, 3, 1, 1};
    const double near = dot(rotated(spec, at(7), q), rotated(spec, at(3), k));
    const double far = dot(rotated(spec, at(1007), q), rotated(spec, at(1003), k));
    const double other = dot(rotated(spec, at(7), q), rotated(spec, at(4), k));
    EXPECT_NEAR(near, far, 8 * 2.0 * tolerance::angle_error(1007, 1.0) * 3.0);
    EXPECT_GT(std::abs(near - other), 0.01);
  }
}

TEST(Rope, IsTheIdentityAtPositionZero) {
  const Row x = ramp(8);
  EXPECT_EQ(rotated({.rotary_dim = 8}, at(0), x), x);
}

TEST(Rope, MultipliesCosAndSinByTheAttentionFactor) {
  RopeSpec spec{.rotary_dim = 8};
  const Angles plain = angles_at(RopeTable(spec), at(9));
  spec.attention_factor = 1.25f;
  const Angles scaled = angles_at(RopeTable(spec), at(9));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(scaled.cos[i], 1.25f * plain.cos[i]);
    EXPECT_EQ(scaled.sin[i], 1.25f * plain.sin[i]);
  }
}

TEST(Rope, TakesCosAndSinOfTheF32Product) {
  const RopeTable table(RopeSpec{.rotary_dim = 64});
  const Angles a = angles_at(table, at(100000));
  for (std::size_t i = 0; i < 32; ++i) {
    const float angle = 100000.f * table.inv_freq()[i];
    EXPECT_NEAR(a.cos[i], std::cos(double(angle)), 1.2e-7) << i;
    EXPECT_NEAR(a.sin[i], std::sin(double(angle)), 1.2e-7) << i;
    const double exact = 100000.0 * std::pow(1e4, -2.0 * double(i) / 64.0);
    EXPECT_NEAR(a.cos[i], std::cos(exact), tolerance::angle_error(1e5, table.inv_freq()[i])) << i;
  }
}

// Values of a published engine for DeepSeek-V4's heads: x[i] = 3 sin(0.1 i), 512 wide, the last 64
// dims turned in adjacent pairs, position 1000.
Row deepseek_head() {
  Row x(512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.f * std::sin(0.1f * float(i));
  return x;
}

/// That engine gets the frequency of pair i as a product of i f32 factors, each rounded twice, so
/// its angle may be off by i + 1 times an angle's own error; no pair is longer than 3 sqrt 2.
void expect_run(const RopeSpec& spec, const Row& row, std::size_t begin, const Row& want) {
  const RopeTable table(spec);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::size_t pair = (begin + i - 448) / 2;
    const double error = tolerance::angle_error(1000, table.inv_freq()[pair]);
    EXPECT_NEAR(row[begin + i], want[i], 4.25 * double(pair + 1) * error) << i;
  }
}

TEST(Rope, AgreesWithPublishedValuesOfAnInterleavedSuffix) {
  const RopeSpec spec{
      .rotary_dim = 64, .layout = RopeLayout::kInterleaved, .placement = RopePlacement::kSuffix};
  const Row y = rotated(spec, at(1000), deepseek_head());
  expect_run(spec, y, 448,
             {-0.739249706f, 3.14975429f, -3.68068385f, 0.494263053f, -2.82587147f, -2.89377594f,
              0.240810752f, 4.20801258f});
  expect_run(spec, y, 504,
             {0.16559808f, 0.787676215f, 0.660696208f, 1.45896173f, 1.18959558f, 2.02066612f,
              1.69728267f, 2.47052217f});
}

TEST(Rope, AgreesWithPublishedValuesUnderYarn) {
  const RopeSpec spec{.rotary_dim = 64,
                      .theta = 160000.f,
                      .scaling = YarnScaling{.factor = 16.f, .original_context = 65536.f},
                      .layout = RopeLayout::kInterleaved,
                      .placement = RopePlacement::kSuffix};
  const Row y = rotated(spec, at(1000), deepseek_head());
  expect_run(spec, y, 448,
             {-0.739249706f, 3.14975429f, -3.32734871f, -1.64938772f, -3.07103729f, 2.63215089f,
              3.04762149f, -2.91159153f});
  expect_run(spec, y, 476,
             {-2.11911488f, 0.26620847f, 0.656546295f, 2.74036264f, 3.38450241f, -0.179415226f,
              2.27044535f, -3.07991147f});
  expect_run(spec, y, 504,
             {0.401122808f, 0.697823048f, 0.983429134f, 1.2641027f, 1.52680624f, 1.77963257f,
              2.00942445f, 2.22406411f});
}

TEST(RopeScaling, LinearDividesEveryFrequency) {
  const RopeTable table(RopeSpec{.rotary_dim = 4, .theta = 100.f, .scaling = LinearScaling{8.f}});
  EXPECT_EQ(table.inv_freq()[0], 0.125f);
  EXPECT_EQ(table.inv_freq()[1], 0.0125f);
}

double plain_frequency(double theta, int i, double dims) {
  return std::pow(theta, -2.0 * i / dims);
}

TEST(RopeScaling, YarnBlendsBetweenTheCorrectionDims) {
  const RopeTable table(RopeSpec{
      .rotary_dim = 64, .scaling = YarnScaling{.factor = 40.f, .original_context = 4096.f}});
  const auto f = table.inv_freq();
  EXPECT_EQ(f[0], 1.f);
  EXPECT_NEAR(f[10], 0.0562341f, 5e-8);
  EXPECT_NEAR(f[16], 0.0055f, 5e-9);
  EXPECT_NEAR(f[31], 3.333804e-6f, 5e-13);
  for (int i = 0; i < 32; ++i) {  // low 10 and high 23
    const float base = float(plain_frequency(1e4, i, 64));
    const float slow = float(plain_frequency(1e4, i, 64) / 40.0);
    EXPECT_EQ(f[i] == base, i <= 10) << i;
    EXPECT_EQ(f[i] == slow, i >= 23) << i;
  }
}

TEST(RopeScaling, YarnFindsItsCorrectionDimsFromThetaAndContext) {
  const RopeTable table(
      RopeSpec{.rotary_dim = 64,
               .theta = 160000.f,
               .scaling = YarnScaling{.factor = 16.f, .original_context = 65536.f}});
  for (int i = 0; i < 32; ++i) {  // low 15 and high 25
    const double base = plain_frequency(160000.0, i, 64);
    EXPECT_EQ(table.inv_freq()[i] == float(base), i <= 15) << i;
    EXPECT_EQ(table.inv_freq()[i] == float(base / 16.0), i >= 25) << i;
  }
}

TEST(RopeScaling, YarnWithoutTruncationKeepsFractionalCorrectionDims) {
  const YarnScaling yarn{.factor = 32.f, .original_context = 4096.f, .truncate = false};
  const RopeTable table(RopeSpec{.rotary_dim = 64, .theta = 150000.f, .scaling = yarn});
  for (const int i : {9, 13, 17}) {
    const double blend = (double(i) - 8.092779) / (17.398024 - 8.092779);
    const double base = plain_frequency(150000.0, i, 64);
    const double want = base * (1.0 - blend) + base / 32.0 * blend;
    EXPECT_NEAR(table.inv_freq()[i], want, 2e-6 * want) << i;
  }
}

TEST(RopeScaling, YarnEndsItsRampAtTheLastDim) {
  // The correction dims are 1 and 8, of which the second is held to 7: pair 3 lies at a third.
  const YarnScaling yarn{.factor = 4.f, .original_context = 1e8f, .beta_fast = 1e6f};
  const RopeTable table(RopeSpec{.rotary_dim = 8, .scaling = yarn});
  EXPECT_FLOAT_EQ(table.inv_freq()[3], 7.5e-4f);
}

TEST(RopeScaling, YarnTurnsAnEmptyRampIntoAStep) {
  const YarnScaling yarn{.factor = 4.f, .original_context = 1.f};  // both correction dims below 0
  const RopeTable table(RopeSpec{.rotary_dim = 8, .scaling = yarn});
  for (const float frequency : table.inv_freq()) EXPECT_TRUE(std::isfinite(frequency));
  EXPECT_EQ(table.inv_freq()[0], 1.f);
  EXPECT_FLOAT_EQ(table.inv_freq()[1], 0.025f);
}

TEST(RopeScaling, Llama3SmoothsBetweenItsTwoWavelengths) {
  const RopeTable table(RopeSpec{.rotary_dim = 128, .theta = 500000.f, .scaling = Llama3Scaling{}});
  const auto f = table.inv_freq();
  EXPECT_NEAR(f[29], 2.166571e-3f, 5e-10);
  EXPECT_NEAR(f[34], 1.785078e-4f, 5e-11);
  EXPECT_NEAR(f[63], 3.068926e-7f, 5e-14);
  for (int i = 0; i < 64; ++i) {
    const double base = plain_frequency(500000.0, i, 128);
    EXPECT_EQ(f[i] == float(base), i < 29) << i;
    EXPECT_EQ(f[i] == float(base / 8.0), i > 34) << i;
  }
}

TEST(RopeScaling, ProportionalLeavesTheLastPairsUnturned) {
  const RopeSpec spec{.rotary_dim = 8, .scaling = ProportionalScaling{.active_fraction = 0.5f}};
  const RopeTable table(spec);
  EXPECT_EQ(table.inv_freq()[0], 1.f);
  EXPECT_FLOAT_EQ(table.inv_freq()[1], 0.1f);
  EXPECT_EQ(table.inv_freq()[2], 0.f);
  EXPECT_EQ(table.inv_freq()[3], 0.f);
  const Row x = ramp(8), y = rotated(spec, at(3), x);
  for (const std::size_t i : {2, 3, 6, 7}) EXPECT_EQ(y[i], x[i]);
  for (const std::size_t i : {0, 1, 4, 5}) EXPECT_NE(y[i], x[i]);
  const Row first = rotated(spec, at(3), {1, 0, 0, 0, 0, 0, 0, 0});  // dim 0 is paired with dim 4
  EXPECT_FLOAT_EQ(first[0], std::cos(3.f));
  EXPECT_FLOAT_EQ(first[4], std::sin(3.f));
}

TEST(RopeScaling, ProportionalCountsPairsOfARoundFraction) {
  // 0.7 is a little less in f32; 20 dims still have 7 turning pairs.
  const RopeTable table(
      RopeSpec{.rotary_dim = 20, .scaling = ProportionalScaling{.active_fraction = 0.7f}});
  EXPECT_NE(table.inv_freq()[6], 0.f);
  EXPECT_EQ(table.inv_freq()[7], 0.f);
}

TEST(RopeScaling, FactorsDivideTheirOwnPair) {
  const RopeSpec spec{.rotary_dim = 4, .theta = 100.f, .scaling = FactorScaling{{2.f, 1e30f}}};
  EXPECT_EQ(RopeTable(spec).inv_freq()[0], 0.5f);
  const Row x = {1, 2, 3, 4}, y = rotated(spec, at(4000), x);
  EXPECT_NE(y[0], x[0]);
  EXPECT_EQ(y[1], x[1]);
  EXPECT_EQ(y[3], x[3]);
}

TEST(RopeMagnitude, OfYarnFollowsFactorAndScale) {
  EXPECT_FLOAT_EQ(yarn_magnitude(40.f, 1.f), 1.368888f);
  EXPECT_FLOAT_EQ(yarn_magnitude(16.f, 1.f), 1.2772589f);
  EXPECT_EQ(yarn_magnitude(1.f, 1.f), 1.f);
  EXPECT_EQ(yarn_magnitude(0.5f, 1.f), 1.f);
}

TEST(RopeMagnitude, OfEqualYarnScalesCancelsInTheRotationAndStaysInTheScore) {
  const float m = yarn_magnitude(40.f, 0.707f);
  EXPECT_EQ(m / yarn_magnitude(40.f, 0.707f), 1.f);
  EXPECT_NEAR(m, 1.260804f, 5e-7);
  EXPECT_NEAR(m * m, 1.58963f, 5e-6);
  const float one = yarn_magnitude(40.f, 1.f);
  EXPECT_NEAR(one * one, 1.873854f, 1e-6);
}

TEST(RopeMagnitude, OfLongRopeGrowsWithTheLogarithmOfTheFactor) {
  EXPECT_EQ(longrope_magnitude(1.f, 4096.f), 1.f);
  EXPECT_FLOAT_EQ(longrope_magnitude(32.f, 4096.f), 1.1902380714f);  // sqrt(1 + 5/12)
}

TEST(RopeSections, WithEqualPositionsEqualPlainRope) {
  for (const bool interleaved : {false, true}) {
    RopeSpec spec{.rotary_dim = 64};
    const Row x = ramp(64), plain = rotated(spec, at(77), x);
    spec.sections = {11, 11, 10};
    spec.interleaved_sections = interleaved;
    EXPECT_EQ(rotated(spec, at(77), x), plain);
  }
}

/// For each pair the axis (0 t, 1 h, 2 w) whose position turns it.
std::string turning_axes(const RopeSpec& spec) {
  const RopeTable table(spec);
  std::string axes(spec.rotary_dim / 2, '?');
  for (int axis = 0; axis < 3; ++axis) {
    RopePosition position{};
    position[std::size_t(axis)] = 1;
    const Angles a = angles_at(table, position);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (a.sin[i] != 0.f) axes[i] = "thw"[axis];
    }
  }
  return axes;
}

TEST(RopeSections, AreContiguousRuns) {
  EXPECT_EQ(turning_axes({.rotary_dim = 16, .sections = {3, 1, 4}}), "ttthwwww");
}

TEST(RopeSections, OrAlternate) {
  EXPECT_EQ(
      turning_axes({.rotary_dim = 64, .sections = {11, 11, 10}, .interleaved_sections = true}),
      "thwthwthwthwthwthwthwthwthwthwth");
  EXPECT_EQ(turning_axes({.rotary_dim = 16, .sections = {5, 2, 1}, .interleaved_sections = true}),
            "thwthttt");
}

void expect_refused(RopeSpec spec, const std::string& field) {
  try {
    spec.validate(64);
    ADD_FAILURE() << field << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
  }
}

TEST(RopeSpec, NamesTheWrongField) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  expect_refused({.rotary_dim = 0}, "rotary_dim");
  expect_refused({.rotary_dim = 7}, "rotary_dim");
  expect_refused({.rotary_dim = 66}, "rotary_dim");
  expect_refused({.rotary_dim = 64, .theta = 0.f}, "theta");
  expect_refused({.rotary_dim = 64, .theta = nan}, "theta");
  expect_refused({.rotary_dim = 64, .attention_factor = infinity}, "attention_factor");
  expect_refused({.rotary_dim = 64, .scaling = LinearScaling{0.f}}, "linear factor");
  expect_refused({.rotary_dim = 64, .scaling = ProportionalScaling{1.5f, 1.f}}, "fraction");
  const YarnScaling yarn{.factor = 4.f, .original_context = 4096.f};
  expect_refused({.rotary_dim = 64, .theta = 1.f, .scaling = yarn}, "theta");
  expect_refused({.rotary_dim = 64, .scaling = YarnScaling{.factor = 4.f}}, "original context");
  expect_refused({.rotary_dim = 64, .scaling = Llama3Scaling{8.f, 4.f, 4.f, 8192.f}},
                 "high_freq_factor");
  expect_refused({.rotary_dim = 64, .scaling = FactorScaling{{1.f, 1.f}}}, "factors");
  expect_refused({.rotary_dim = 4, .scaling = FactorScaling{{1.f, 0.f}}}, "factor");
  expect_refused({.rotary_dim = 64, .sections = {16, 8, 9}}, "sections");
  expect_refused({.rotary_dim = 64, .sections = {0xfffffff0u, 16, 32}}, "sections");
  expect_refused({.rotary_dim = 64, .interleaved_sections = true}, "sections");
}

TEST(RopeSpec, AcceptsWhatModelsUse) {
  EXPECT_NO_THROW((RopeSpec{.rotary_dim = 64}.validate(64)));
  EXPECT_NO_THROW((RopeSpec{.rotary_dim = 32, .scaling = Llama3Scaling{}}.validate(64)));
  EXPECT_NO_THROW((RopeSpec{.rotary_dim = 64, .sections = {16, 8, 8}}.validate(64)));
}

}  // namespace
}  // namespace lemma::algorithm
