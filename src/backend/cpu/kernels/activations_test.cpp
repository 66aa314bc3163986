// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/cpu/kernels/kernel_test_data.hpp"

namespace lemma::cpu {
namespace {

class ActivationsTest : public KernelTest {};

/// From where results vanish to where they are their inputs, and around zero.
std::vector<float> inputs() {
  std::vector<float> all;
  for (float x = -30.f; x <= 30.f; x += 0.0137f) all.push_back(x);
  for (const float x : {0.f, -0.f, 1e-30f, -1e-30f, 1e30f, -1e30f}) all.push_back(x);
  return all;
}

TEST_P(ActivationsTest, ComputeTheExactGelu) {
  const std::vector<float> g = inputs();
  std::vector<float> up(g.size(), 0.5f), alone(g.size()), gated(g.size());
  table().gelu_erf(g.data(), nullptr, g.size(), alone.data());
  table().gelu_erf(g.data(), up.data(), g.size(), gated.data());
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double x = double(g[i]), want = 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    // Rounding an exponent of x^2 / 2 a few times moves the result by so many of its parts.
    const double parts = 3e-7 * (2 + 0.5 * x * x);
    ASSERT_NEAR(alone[i], want, parts * std::fabs(want) + 1e-36) << x;
    ASSERT_EQ(gated[i], alone[i] * 0.5f) << x;
  }
}

TEST_P(ActivationsTest, CutOffWhatIsBelowZero) {
  const std::vector<float> g = inputs();
  std::vector<float> up(g.size(), 0.25f), plain(g.size()), squared(g.size()), in_place = up;
  table().relu(g.data(), nullptr, g.size(), plain.data());
  table().relu_squared(g.data(), up.data(), g.size(), squared.data());
  table().relu(g.data(), in_place.data(), g.size(), in_place.data());
  for (std::size_t i = 0; i < g.size(); ++i) {
    const float x = g[i] < 0.f ? 0.f : g[i];
    ASSERT_EQ(plain[i], x);
    ASSERT_EQ(squared[i], x * x * 0.25f);
    ASSERT_EQ(in_place[i], x * 0.25f);
  }
}

TEST_P(ActivationsTest, LetNanThrough) {
  const float nan = std::nanf("");
  float out[3];
  table().gelu_erf(&nan, nullptr, 1, out);
  table().relu(&nan, nullptr, 1, out + 1);
  table().relu_squared(&nan, nullptr, 1, out + 2);
  for (const float x : out) EXPECT_TRUE(std::isnan(x));
}

LEMMA_FOR_EACH_ISA(ActivationsTest);

}  // namespace
}  // namespace lemma::cpu
