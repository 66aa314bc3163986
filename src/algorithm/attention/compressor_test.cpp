// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/compressor.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithm/attention/test_rows.hpp"

namespace lemma::algorithm {
namespace {

using namespace test;

/// A compressor with its frontier and the rows that it has closed.
struct Stream {
  explicit Stream(const CompressorSpec& s) : spec(s), block(s.frontier_size(), std::nanf("")) {}

  CompressStep feed(std::uint32_t position, std::span<const float> value,
                    std::span<const float> gate) {
    Row bias_row = bias.empty() ? Row(spec.ratio * spec.channels(), 0.f) : bias;
    Row pooled(spec.width);
    frontier.block = block;
    const CompressStep step = compress(spec, bias_row, position, value, gate, frontier, pooled);
    if (step == CompressStep::kClosed) rows.insert(rows.end(), pooled.begin(), pooled.end());
    return step;
  }
  void feed_all(const Row& values, const Row& gates) {
    const std::size_t ch = spec.channels();
    for (std::uint32_t p = 0; p < values.size() / ch; ++p) {
      EXPECT_NE(feed(p, row_of(values, ch, p), row_of(gates, ch, p)), CompressStep::kRefused);
    }
  }

  CompressorSpec spec;
  Row block, bias = {}, rows = {};
  Frontier frontier = {};
};

Row pooled(const CompressorSpec& spec, const Row& values, const Row& gates, const Row& bias = {}) {
  Stream stream(spec);
  stream.bias = bias;
  stream.feed_all(values, gates);
  return stream.rows;
}

constexpr CompressorSpec kPairs{.ratio = 2, .width = 1};
constexpr CompressorSpec kOverlap{.ratio = 4, .width = 2, .overlap = true};

TEST(Compress, WeighsValuesByTheSoftmaxOfGates) {
  EXPECT_FLOAT_EQ(pooled(kPairs, {1, 3}, {0, 1})[0], 2.46211716f);
  EXPECT_EQ(pooled(kPairs, {1, 3}, {0, 0}), (Row{2}));
  EXPECT_NEAR(pooled(kPairs, {1, 3}, {50, 0})[0], 1.f, 1e-3f);
}

TEST(Compress, AddsTheBiasOfTheTokensPlaceToItsGate) {
  EXPECT_FLOAT_EQ(pooled(kPairs, {1, 3}, {0, 0}, {0, 1})[0], 2.46211716f);
  EXPECT_EQ(pooled(kPairs, {1, 3, 5, 7}, {0, 1, 0, 1}, {1, 0}), (Row{2, 6}));
}

TEST(Compress, TakesEachChannelsOwnSoftmax) {
  const CompressorSpec spec{.ratio = 2, .width = 2};
  const Row rows = pooled(spec, {1, 1, 3, 3}, {0, 0, 0, 1});
  EXPECT_EQ(rows[0], 2.f);
  EXPECT_FLOAT_EQ(rows[1], 2.46211716f);
}

TEST(Compress, StaysFiniteForLargeGates) {
  EXPECT_EQ(pooled(kPairs, {1, 3}, {1e30f, -1e30f}), (Row{1}));
}

TEST(Compress, LetsANaNThrough) {
  EXPECT_TRUE(std::isnan(pooled(kPairs, {1, 3}, {0, std::nanf("")})[0]));
  EXPECT_TRUE(std::isnan(pooled(kPairs, {1, 3}, {std::nanf(""), 0})[0]));
  EXPECT_TRUE(std::isnan(pooled(kPairs, {std::nanf(""), 3}, {0, 0})[0]));
}

TEST(Compress, WithOverlapPoolsTheHighHalfOfTheFirstWindowOnly) {
  const CompressorSpec spec{.ratio = 2, .width = 1, .overlap = true};
  // Per token [low, high]; equal gates make means.
  EXPECT_EQ(pooled(spec, {100, 1, 200, 3}, {0, 0, 0, 0}), (Row{2}));
}

TEST(Compress, WithOverlapPoolsTheLowHalfOfTheWindowBefore) {
  const CompressorSpec spec{.ratio = 2, .width = 1, .overlap = true};
  const Row gates(8, 0.f);
  EXPECT_EQ(pooled(spec, {10, 1, 20, 3, 1e9f, 5, 1e9f, 7}, gates),
            (Row{2, (10 + 20 + 5 + 7) / 4.f}));
}

TEST(Compress, KeepsTheBiasThatALowHalfGotInItsOwnWindow) {
  const CompressorSpec spec{.ratio = 2, .width = 1, .overlap = true};
  // Biases [place][low, high]: the low half of place 0 weighs almost everything.
  const Row rows = pooled(spec, {10, 1, 20, 3, 0, 5, 0, 7}, Row(8, 0.f), {60, 0, 0, 0});
  EXPECT_NEAR(rows[1], 10.f, 1e-3f);
}

TEST(Compress, OfAChangedLowHalfChangesTheNextRowOnly) {
  Row values = random_row(8 * 4, 1);
  const Row gates = random_row(8 * 4, 2);
  const Row before = pooled(kOverlap, values, gates);
  values[0] += 1.f;  // low half of the first token
  const Row after = pooled(kOverlap, values, gates);
  EXPECT_EQ(before[0], after[0]);
  EXPECT_EQ(before[1], after[1]);
  EXPECT_NE(before[2], after[2]);
  EXPECT_EQ(before[3], after[3]);
}

TEST(Compress, AgreesWithASoftmaxInDoublePrecision) {
  const Row values = random_row(12 * 4, 1), gates = random_row(12 * 4, 2);
  const Row bias = random_row(4 * 4, 3);
  const Row got = pooled(kOverlap, values, gates, bias);
  Row want;
  for (std::size_t window = 0; window < 3; ++window) {
    for (std::size_t d = 0; d < 2; ++d) {
      double mass = 0, sum = 0;
      const auto add = [&](std::size_t token, std::size_t channel) {
        const double e =
            std::exp(double(gates[token * 4 + channel]) + double(bias[token % 4 * 4 + channel]));
        mass += e;
        sum += e * double(values[token * 4 + channel]);
      };
      for (std::size_t s = 0; s < 4; ++s) {
        if (window > 0) add((window - 1) * 4 + s, d);
        add(window * 4 + s, 2 + d);
      }
      want.push_back(float(sum / mass));
    }
  }
  expect_near(got, want, tolerance::kAttend);
}

TEST(Compress, ClosesAWindowWithItsLastToken) {
  Stream stream(kOverlap);
  const Row token(4, 1.f);
  std::vector<std::uint32_t> closed;
  for (std::uint32_t p = 0; p < 11; ++p) {
    if (stream.feed(p, token, token) == CompressStep::kClosed) closed.push_back(p);
    EXPECT_EQ(closed.size(), closed_rows(p + 1, 4));
  }
  EXPECT_EQ(closed, (Ids{3, 7}));
  EXPECT_EQ(stream.frontier.next % 4, 3u);  // pending
  EXPECT_EQ(row_position(1, 4), 4u);
}

TEST(Compress, GivesTheSameBitsFromAFrontierMovedAnywhere) {
  const Row values = random_row(11 * 4, 1), gates = random_row(11 * 4, 2);
  const Row want = pooled(kOverlap, values, gates);
  for (std::uint32_t cut = 0; cut <= 11; ++cut) {  // the state is copied elsewhere after `cut`
    Stream first(kOverlap);
    for (std::uint32_t p = 0; p < cut; ++p)
      first.feed(p, row_of(values, 4, p), row_of(gates, 4, p));
    Stream second(kOverlap);
    second.block = first.block;
    second.frontier.next = first.frontier.next;
    second.rows = first.rows;
    first.block.assign(first.block.size(), std::nanf(""));
    for (std::uint32_t p = cut; p < 11; ++p) {
      second.feed(p, row_of(values, 4, p), row_of(gates, 4, p));
    }
    EXPECT_EQ(second.rows, want) << cut;
  }
}

TEST(Compress, RefusesAJumpAndChangesNothing) {
  Stream stream(kOverlap);
  const Row token = random_row(4, 1), other = random_row(4, 2);
  for (std::uint32_t p = 0; p < 8; ++p) stream.feed(p, token, token);
  const Row block = stream.block;
  for (const std::uint32_t wrong : {9u, 7u, 0u, 0xffffffffu}) {
    EXPECT_EQ(stream.feed(wrong, other, other), CompressStep::kRefused);
    EXPECT_EQ(stream.frontier.next, 8u);
    EXPECT_EQ(stream.block, block);
  }
  EXPECT_EQ(stream.feed(8, other, other), CompressStep::kPending);
}

TEST(CompressorSpec, SizesItsFrontier) {
  EXPECT_EQ((CompressorSpec{.ratio = 128, .width = 512}.frontier_size()), 2u * 128 * 512);
  EXPECT_EQ((CompressorSpec{.ratio = 4, .width = 512, .overlap = true}.frontier_size()),
            2u * 4 * 1024 + 2u * 4 * 512);
}

TEST(CompressorSpec, RemembersRowsAndAFrontier) {
  EXPECT_EQ(kOverlap.slots(),
            (Slots{Slot{.width = 2, .ratio = 4, .group = 2},
                   Slot{.kind = SlotKind::kFixed, .width = 2 * 4 * 4 + 2 * 4 * 2}}));
}

TEST(CompressorSpec, NamesTheWrongField) {
  EXPECT_NO_THROW(kOverlap.validate());
  expect_refused(changed(kOverlap, &CompressorSpec::ratio, 1u), "ratio");
  expect_refused(changed(kOverlap, &CompressorSpec::ratio, 0xffffffffu), "width");
  expect_refused(changed(kOverlap, &CompressorSpec::width, 0u), "width");
  expect_refused(changed(kOverlap, &CompressorSpec::width, 0x80000000u), "width");
}

}  // namespace
}  // namespace lemma::algorithm
