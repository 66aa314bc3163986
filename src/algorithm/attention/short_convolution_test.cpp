// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/short_convolution.hpp"

#include <gtest/gtest.h>

#include "algorithm/attention/test_rows.hpp"
#include "algorithm/ffn/dense_mlp.hpp"

namespace lemma::algorithm {
namespace {

using test::changed;
using test::expect_refused;
using test::random_row;
using test::Row;

float silu(float x) {
  return x * sigmoid(x);
}

TEST(ShortConvolution, WeighsTheOldestRowWithTheFirstWeight) {
  const ShortConvolutionSpec spec{.channels = 1, .kernel = 3};
  const Row weight = {100.f, 10.f, 1.f};
  Row history(2, 0.f), out(1);
  const Row expected = {1.f, 12.f, 123.f, 234.f};
  for (int t = 0; t < 4; ++t) {
    convolve(spec, weight, Row{float(t + 1)}, history, out);
    EXPECT_EQ(out[0], silu(expected[std::size_t(t)])) << t;
  }
  EXPECT_EQ(history, (Row{3.f, 4.f})) << "rows as they came in, oldest first";
}

TEST(ShortConvolution, KeepsChannelsApart) {
  const ShortConvolutionSpec spec{.channels = 2, .kernel = 2};
  const Row weight = {1.f, 2.f, 3.f, 4.f};
  Row history = {10.f, 20.f}, out(2);
  convolve(spec, weight, Row{5.f, 7.f}, history, out);
  EXPECT_EQ(out, (Row{silu(10.f + 10.f), silu(60.f + 28.f)}));
}

TEST(ShortConvolution, OfOneRowHasNoHistory) {
  const ShortConvolutionSpec spec{.channels = 2, .kernel = 1};
  EXPECT_TRUE(spec.slots().empty());
  Row row = {1.f, -2.f};
  convolve(spec, Row{3.f, 1.f}, row, {}, row);
  EXPECT_EQ(row, (Row{silu(3.f), silu(-2.f)})) << "in place";
}

TEST(ShortConvolution, ShiftsAHistoryLongerThanTheChunk) {
  const ShortConvolutionSpec spec{.channels = 3, .kernel = 5};
  const Row weight = random_row(15, 1);
  Row history(spec.history_size(), 0.f), out(3);
  const Row text = random_row(3 * 7, 2);
  for (std::size_t t = 0; t < 7; ++t) {
    convolve(spec, weight, test::row_of(text, 3, t), history, out);
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t c = 0; c < 3; ++c) {
        const float want = t + 1 + i < 4 ? 0.f : text[(t + i - 3) * 3 + c];
        EXPECT_EQ(history[i * 3 + c], want) << "row " << t << " place " << i;
      }
    }
  }
}

TEST(ShortConvolution, RefusesWhatMakesNoSense) {
  using Spec = ShortConvolutionSpec;
  const Spec spec{.channels = 8, .kernel = 4};
  EXPECT_NO_THROW(spec.validate());
  expect_refused(changed(spec, &Spec::channels, 0u), "channels");
  expect_refused(changed(spec, &Spec::kernel, 0u), "kernel");
  expect_refused(changed(spec, &Spec::kernel, 0xffffffffu), "kernel");
}

}  // namespace
}  // namespace lemma::algorithm
