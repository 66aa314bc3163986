// SPDX-License-Identifier: Apache-2.0
#include "algorithm/tolerance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "algorithm/linear.hpp"
#include "base/half.hpp"

namespace lemma::algorithm {
namespace {

using Row = std::vector<float>;

Row random_row(std::size_t n, std::mt19937& generator) {
  std::normal_distribution<float> normal;
  Row row(n);
  for (float& value : row) value = normal(generator);
  return row;
}

double dot(const Row& w, const Row& x) {
  double sum = 0.0;
  for (std::size_t i = 0; i < w.size(); ++i) sum += double(w[i]) * double(x[i]);
  return sum;
}

/// The input as an int8 kernel sees it: per 32 values the step largest / 127.
Row rounded_to_int8(const Row& x) {
  Row rounded(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += 32) {
    float largest = 0.f;
    for (std::size_t i = begin; i < begin + 32; ++i) largest = std::max(largest, std::abs(x[i]));
    const float step = largest / 127.f;
    for (std::size_t i = begin; i < begin + 32; ++i) {
      rounded[i] = step == 0.f ? 0.f : std::nearbyint(x[i] / step) * step;
    }
  }
  return rounded;
}

TEST(Tolerance, AdmitsTheSumOfItsTwoTerms) {
  const Tolerance t{0.01, 0.001};
  EXPECT_TRUE(t.admits(10.19, 10.0, 100.0));
  EXPECT_FALSE(t.admits(10.21, 10.0, 100.0));
  EXPECT_FALSE(t.admits(9.79, 10.0, 100.0));
  EXPECT_FALSE(t.admits(std::nan(""), 10.0, 100.0));
  EXPECT_TRUE(Tolerance{}.admits(1.0, 1.0, 1.0));
}

TEST(Tolerance, OfAProductGrowsWithTheRootOfItsLength) {
  EXPECT_EQ(tolerance::project(16384), (Tolerance{5e-5, 1e-5}));
  EXPECT_EQ(tolerance::project(65536), (Tolerance{1e-4, 2e-5}));
  EXPECT_EQ(tolerance::project(64), (Tolerance{1e-5, 1e-6}));
}

TEST(Tolerance, OfAProductHoldsTheRoundingOfPlainSums) {
  std::mt19937 generator(1);
  for (const std::size_t k : {64u, 1024u, 16384u}) {
    const Row x = random_row(k, generator);
    std::vector<double> want;
    std::vector<float> got;
    for (int n = 0; n < 64; ++n) {
      const Row w = random_row(k, generator);
      want.push_back(dot(w, x));
      dot_rows(w, x.data(), k, 1, &got.emplace_back(), 1);
    }
    double largest = 0.0;
    for (const double y : want) largest = std::max(largest, std::abs(y));
    for (std::size_t n = 0; n < want.size(); ++n) {
      EXPECT_TRUE(tolerance::project(k).admits(got[n], want[n], largest)) << k << " " << got[n];
    }
  }
}

TEST(Tolerance, OfInt8ActivationsHoldsForEvenAndForLopsidedGroups) {
  std::mt19937 generator(2);
  for (const float outlier : {1.f, 50.f}) {
    for (const std::size_t k : {256u, 4096u}) {
      Row x = random_row(k, generator);
      for (std::size_t i = 5; i < k; i += 32) x[i] *= outlier;
      const Row rounded = rounded_to_int8(x);
      std::vector<double> want, got;
      double largest = 0.0, worst = 0.0;
      for (int n = 0; n < 512; ++n) {
        const Row w = random_row(k, generator);
        want.push_back(dot(w, x));
        got.push_back(dot(w, rounded));
        largest = std::max(largest, std::abs(want.back()));
        const double error = std::abs(got.back() - want.back());
        worst = std::max(worst, error / tolerance::int8_bound(w, x));
      }
      for (std::size_t n = 0; n < want.size(); ++n) {
        EXPECT_TRUE(tolerance::kInt8Project.admits(got[n], want[n], largest)) << k;
      }
      EXPECT_LT(worst, 1.0) << k;
      EXPECT_GT(worst, 0.3) << "six sigma that 512 draws never half reach bound too much";
    }
  }
}

TEST(Tolerance, OfInt8ActivationsIsZeroForInputsWithoutRounding) {
  EXPECT_EQ(tolerance::int8_bound(Row(40, 1.f), Row(40, 0.f)), 0.0);
}

TEST(Tolerance, OfRoundingToBf16HoldsForEvenAndForLopsidedRows) {
  std::mt19937 generator(3);
  const auto rounded = [](Row x) {
    for (float& v : x) v = base::bf16_to_f32(base::f32_to_bf16(v));
    return x;
  };
  for (const float outlier : {1.f, 8192.f * 1.0038f}) {  // the latter is rounded as far as can be
    for (const bool both : {false, true}) {
      Row x = random_row(1024, generator);
      x[5] = outlier;  // rules every output where it is large
      std::vector<double> want, got;
      double largest = 0.0, worst = 0.0;
      for (int n = 0; n < 512; ++n) {
        const Row w = random_row(1024, generator);
        want.push_back(dot(w, x));
        got.push_back(dot(both ? rounded(w) : w, rounded(x)));
        largest = std::max(largest, std::abs(want.back()));
        const double error = std::abs(got.back() - want.back());
        worst = std::max(worst, error / tolerance::bf16_bound(w, x, both));
      }
      const Tolerance allowed = both ? tolerance::kBf16BothProject : tolerance::kBf16Project;
      for (std::size_t n = 0; n < want.size(); ++n) {
        EXPECT_TRUE(allowed.admits(got[n], want[n], largest)) << outlier << both;
      }
      EXPECT_LT(worst, 1.0) << outlier << both;
      EXPECT_GT(worst, 0.3) << "bounds too much: " << outlier << both;
    }
  }
}

TEST(Tolerance, OfRoundingToBf16IsZeroForNumbersThatItLeaves) {
  EXPECT_EQ(tolerance::bf16_bound(Row(40, 1.f), Row(40, 0.f), false), 0.0);
}

TEST(Tolerance, OfAnAngleGrowsWithThePosition) {
  EXPECT_NEAR(tolerance::angle_error(1e5, 0.75), 8.94e-3 + 1.2e-7, 1e-5);
  EXPECT_EQ(tolerance::angle_error(-8.0, 1.0), tolerance::angle_error(8.0, 1.0));
}

}  // namespace
}  // namespace lemma::algorithm
