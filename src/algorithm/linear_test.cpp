// SPDX-License-Identifier: Apache-2.0
#include "algorithm/linear.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace lemma::algorithm {
namespace {

std::vector<float> random_row(std::size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(n);
  for (float& value : row) value = normal(generator);
  return row;
}

TEST(DotRows, GivesEachRowTheBitsOfItsOwnAscendingSum) {
  for (const std::size_t width : {1u, 3u, 8u, 17u, 260u}) {
    for (const std::size_t rows : {1u, 2u, 7u, 8u, 9u, 16u, 19u}) {
      const std::size_t x_stride = width + 3, y_stride = 5;
      const auto w = random_row(width, 1), x = random_row(rows * x_stride, 2);
      std::vector<float> y(rows * y_stride, -1.f);
      dot_rows(w, x.data(), x_stride, rows, y.data(), y_stride);
      for (std::size_t t = 0; t < rows; ++t) {
        volatile float sum = 0.f;  // one rounding per step, whatever the optimizer would like
        for (std::size_t k = 0; k < width; ++k) sum = sum + w[k] * x[t * x_stride + k];
        EXPECT_EQ(y[t * y_stride], sum) << "width " << width << " row " << t << " of " << rows;
        for (std::size_t k = 1; k < y_stride; ++k) EXPECT_EQ(y[t * y_stride + k], -1.f);
      }
    }
  }
}

TEST(DotRows, SumsInAscendingOrder) {
  // 1e8 + 1 is 1e8 in f32: only the ascending order loses the first 1 and keeps the last.
  const std::vector<float> w = {1, 1, 1, 1}, x = {1, 1e8f, -1e8f, 1};
  float y = 0.f;
  dot_rows(w, x.data(), 4, 1, &y, 1);
  EXPECT_EQ(y, 1.f);
}

TEST(DotRows, GivesZeroForAnEmptySum) {
  float y = 5.f;
  dot_rows({}, nullptr, 0, 1, &y, 1);
  EXPECT_EQ(y, 0.f);
}

TEST(Softcap, HoldsForEveryFiniteInput) {
  EXPECT_NEAR(softcap(1.f, 50.f), 0.9999f, 5e-5f);
  EXPECT_NEAR(softcap(100.f, 50.f), 48.201f, 5e-4f);
  for (const float x : {1000.f, 4400.f, 5000.f, 1e4f, 1e30f}) {
    EXPECT_FLOAT_EQ(softcap(x, 50.f), 50.f) << x;
    EXPECT_FLOAT_EQ(softcap(-x, 50.f), -50.f) << x;
  }
}

TEST(Softcap, LeavesAMaskAlone) {
  const float mask = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(softcap(mask, 50.f), mask);
}

TEST(Softcap, LetsNaNThrough) {
  EXPECT_TRUE(std::isnan(softcap(std::nanf(""), 50.f)));
}

TEST(Softcap, IsTheIdentityWithoutACapAndNearlySoUnderALargeOne) {
  EXPECT_EQ(softcap(123.25f, 0.f), 123.25f);
  EXPECT_FLOAT_EQ(softcap(12.5f, 1e6f), 12.5f);
}

TEST(Clamp, ClipsToBothSides) {
  EXPECT_EQ(clamp(3.f, 2.f), 2.f);
  EXPECT_EQ(clamp(-3.f, 2.f), -2.f);
  EXPECT_EQ(clamp(1.5f, 2.f), 1.5f);
  EXPECT_EQ(clamp(1e30f, 0.f), 1e30f);
  EXPECT_TRUE(std::isnan(clamp(std::nanf(""), 2.f)));
}

}  // namespace
}  // namespace lemma::algorithm
