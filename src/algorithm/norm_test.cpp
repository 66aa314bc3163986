// SPDX-License-Identifier: Apache-2.0
#include "algorithm/norm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lemma/error.hpp"

namespace lemma::algorithm {
namespace {

using Row = std::vector<float>;

Row normalized(const NormSpec& spec, const Row& x, const Row& weight = {}, const Row& bias = {}) {
  Row out(x.size());
  normalize(spec, x, weight, bias, out);
  return out;
}

TEST(Norm, DividesByTheRootOfTheMeanSquare) {
  const Row out = normalized({NormKind::kRms, 0.f}, {3, 4});
  EXPECT_FLOAT_EQ(out[0], 0.84852814f);
  EXPECT_FLOAT_EQ(out[1], 1.1313709f);
}

TEST(Norm, AddsEpsToTheMeanInsideTheRoot) {
  EXPECT_EQ(normalized({NormKind::kRms, 3.f}, {1, 1}), (Row{0.5f, 0.5f}));
  EXPECT_EQ(normalized({NormKind::kLayer, 3.f}, {1, 3}), (Row{-0.5f, 0.5f}));
}

TEST(Norm, TakesTheWeightAsTheFactorItself) {
  EXPECT_EQ(normalized({NormKind::kRms, 0.f}, {2, -2}, {0, 3}), (Row{0, -3}));
}

TEST(Norm, UsesTheBiasedVarianceAroundTheMean) {
  EXPECT_EQ(normalized({NormKind::kLayer, 0.f}, {1, 3}), (Row{-1, 1}));
  EXPECT_EQ(normalized({NormKind::kLayer, 0.f}, {1, 3}, {2, 3}, {10, 20}), (Row{8, 23}));
}

TEST(Norm, AddsABiasWithoutAWeight) {
  EXPECT_EQ(normalized({NormKind::kRms, 0.f}, {5, -5}, {}, {1, 1}), (Row{2, 0}));
}

TEST(Norm, KeepsSmallSquaresBesideALargeOne) {
  // In f32 each 1 would vanish beside 1e8, whose neighbour is 8 away.
  Row x(4097, 1.f);
  x[0] = 1e4f;
  const float root = float(std::sqrt((1e8 + 4096.0) / 4097.0));
  EXPECT_EQ(normalized({NormKind::kRms, 0.f}, x)[1], 1.f / root);
}

TEST(Norm, KeepsTheVarianceOfARowFarFromZero) {
  Row x;
  for (int i = 0; i < 4096; ++i) x.push_back(i % 2 == 0 ? 10000.f : 10001.f);
  const Row out = normalized({NormKind::kLayer, 0.f}, x);
  EXPECT_EQ(out[0], -1.f);
  EXPECT_EQ(out[1], 1.f);
}

TEST(Norm, StaysFiniteForAnyFiniteRow) {
  for (const float scale : {1e38f, 1e30f, 1e-20f, 1e-38f}) {
    const Row out = normalized({NormKind::kRms, 0.f}, {scale, -scale});
    EXPECT_FLOAT_EQ(out[0], 1.f) << scale;
    EXPECT_FLOAT_EQ(out[1], -1.f) << scale;
  }
}

TEST(Norm, GivesZerosForAConstantRowWithoutEps) {
  EXPECT_EQ(normalized({NormKind::kRms, 0.f}, {0, 0}), (Row{0, 0}));
  EXPECT_EQ(normalized({NormKind::kLayer, 0.f}, {7, 7}), (Row{0, 0}));
}

TEST(Norm, LetsNaNThrough) {
  EXPECT_TRUE(std::isnan(normalized({}, {1, std::nanf("")})[0]));
}

TEST(Norm, WorksInPlace) {
  Row x = {1, 2, 3, 4}, weight = {1, 2, 3, 4}, bias = {4, 3, 2, 1};
  const Row apart = normalized({NormKind::kLayer, 1e-5f}, x, weight, bias);
  normalize({NormKind::kLayer, 1e-5f}, x, weight, bias, x);
  EXPECT_EQ(x, apart);
}

TEST(Norm, RefusesAnEpsThatIsNoSmallNumber) {
  EXPECT_NO_THROW((NormSpec{NormKind::kRms, 0.f}.validate()));
  for (const float eps : {-1e-6f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_THROW((NormSpec{NormKind::kRms, eps}.validate()), Error) << eps;
  }
}

TEST(L2Norm, DividesByTheRootOfTheSum) {
  Row out(2);
  l2_normalize(Row{3, 4}, 0.f, out);
  EXPECT_EQ(out, (Row{0.6f, 0.8f}));
  l2_normalize(Row{1, 1}, 2.f, out);
  EXPECT_EQ(out, (Row{0.5f, 0.5f}));
}

TEST(L2Norm, KeepsZeroZero) {
  for (const float eps : {0.f, 1e-6f}) {
    Row out(2, 1.f);
    l2_normalize(Row{0, 0}, eps, out);
    EXPECT_EQ(out, (Row{0, 0})) << eps;
  }
}

}  // namespace
}  // namespace lemma::algorithm
