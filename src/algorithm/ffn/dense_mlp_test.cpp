// SPDX-License-Identifier: Apache-2.0
#include "algorithm/ffn/dense_mlp.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lemma/error.hpp"

namespace lemma::algorithm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

ActivationSpec silu(float limit) {
  return {.kind = Activation::kSilu, .limit = limit};
}
ActivationSpec oai() {
  return {.kind = Activation::kSwigluOai, .limit = 7.f};
}
ActivationSpec situ(float linear_beta) {
  return {.kind = Activation::kSitu, .beta = 4.f, .linear_beta = linear_beta};
}

std::vector<ActivationSpec> every_activation() {
  ActivationSpec after = silu(10.f);
  after.limit_after = true;
  return {silu(0.f),
          silu(10.f),
          after,
          oai(),
          situ(0.f),
          situ(25.f),
          {.kind = Activation::kGeluTanh},
          {.kind = Activation::kGeluErf},
          {.kind = Activation::kRelu},
          {.kind = Activation::kReluSquared}};
}

TEST(Activation, SiluIsTheInputTimesItsSigmoid) {
  EXPECT_FLOAT_EQ(activate(silu(0.f), 1.25f, 1.f), 0.971624851f);
  EXPECT_FLOAT_EQ(activate(silu(0.f), 1.25f, -2.f), -1.943249702f);
}

TEST(Activation, ClampedSiluLimitsTheGateAboveAndTheUpBranchOnBothSides) {
  EXPECT_FLOAT_EQ(activate(silu(10.f), 20.f, 20.f), 99.995460f);
  EXPECT_FLOAT_EQ(activate(silu(10.f), 20.f, -20.f), -99.995460f);
  EXPECT_NEAR(activate(silu(10.f), -20.f, 20.f), -4.122e-7f, 1e-10f);
}

TEST(Activation, MayLimitTheSiluInsteadOfTheGate) {
  ActivationSpec spec = silu(1.5f);
  spec.limit_after = true;
  EXPECT_EQ(activate(spec, 2.f, 3.f), 1.5f * 1.5f) << "silu(2) is 1.76";
  EXPECT_FLOAT_EQ(activate(spec, 1.5f, 1.f), 1.5f * sigmoid(1.5f)) << "below the limit as without";
  EXPECT_FLOAT_EQ(activate(silu(1.5f), 2.f, 3.f), 1.5f * sigmoid(1.5f) * 1.5f);
  EXPECT_FLOAT_EQ(activate(spec, -2.f, -3.f), -2.f * sigmoid(-2.f) * -1.5f) << "no lower limit";
}

TEST(Activation, AnInfiniteLimitIsNone) {
  for (const float g : {-30.f, -1.f, 0.f, 2.f, 90.f}) {
    EXPECT_EQ(activate(silu(kInfinity), g, 3.f), activate(silu(0.f), g, 3.f)) << g;
  }
}

TEST(Activation, SwigluOaiAddsOneToTheUpBranch) {
  EXPECT_FLOAT_EQ(activate(oai(), 10.f, 10.f), 55.999625f);
  EXPECT_NEAR(activate(oai(), -10.f, -10.f), 2.4348e-6f, 1e-10f);
  EXPECT_NEAR(activate(oai(), 2.f, 0.5f), 2.903488f, 5e-7f);
  EXPECT_NEAR(activate(oai(), -2.f, -0.5f), -0.032171f, 5e-7f);
}

TEST(Activation, SituBoundsBothBranchesButNotTheSigmoid) {
  EXPECT_FLOAT_EQ(activate(situ(25.f), 2.f, 30.f), 33.932364f);
  EXPECT_NEAR(activate(situ(25.f), -3.f, -30.f), 2.511176f, 5e-7f);
  EXPECT_FLOAT_EQ(activate(situ(0.f), 2.f, 30.f), 30.f * activate(situ(0.f), 2.f, 1.f));
}

TEST(Activation, TheTwoGelusDiffer) {
  const ActivationSpec tanh{.kind = Activation::kGeluTanh}, erf{.kind = Activation::kGeluErf};
  EXPECT_NEAR(activate(tanh, 1.f, 1.f), 0.841192f, 5e-7f);
  EXPECT_NEAR(activate(tanh, -1.f, 1.f), -0.158808f, 5e-7f);
  EXPECT_NEAR(activate(tanh, 3.f, 1.f), 2.996363f, 5e-7f);
  EXPECT_NEAR(activate(erf, 1.f, 1.f), 0.841345f, 5e-7f);
  EXPECT_NEAR(activate(erf, -1.f, 1.f), -0.158655f, 5e-7f);
}

TEST(Activation, ReluCutsAndReluSquaredSquares) {
  const ActivationSpec relu{.kind = Activation::kRelu}, squared{.kind = Activation::kReluSquared};
  EXPECT_EQ(activate(relu, 3.f, 2.f), 6.f);
  EXPECT_EQ(activate(relu, -3.f, 2.f), 0.f);
  EXPECT_EQ(activate(squared, 3.f, 1.f), 9.f);
  EXPECT_EQ(activate(squared, -3.f, 1.f), 0.f);
}

TEST(Activation, IsFiniteForLargeGates) {
  for (const ActivationSpec& spec : every_activation()) {
    for (const float g : {1e4f, -1e4f, 1e15f, -1e15f}) {
      EXPECT_TRUE(std::isfinite(activate(spec, g, 2.f))) << int(spec.kind) << " at " << g;
    }
  }
}

TEST(Activation, LetsNaNThrough) {
  for (const ActivationSpec& spec : every_activation()) {
    EXPECT_TRUE(std::isnan(activate(spec, std::nanf(""), 2.f))) << int(spec.kind);
    EXPECT_TRUE(std::isnan(activate(spec, 2.f, std::nanf("")))) << int(spec.kind);
  }
}

TEST(Activation, OfARowIsThatOfItsElementsAtEveryLength) {
  for (const ActivationSpec& spec : every_activation()) {
    for (std::size_t n = 1; n <= 17; ++n) {
      std::vector<float> gate(n), up(n), out(n);
      for (std::size_t i = 0; i < n; ++i) gate[i] = 0.7f * float(i) - 4.f, up[i] = 3.f - float(i);
      activate(spec, gate, up, out);
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(out[i], activate(spec, gate[i], up[i]));
      activate(spec, gate, up, gate);
      EXPECT_EQ(gate, out) << "in place";
    }
  }
}

TEST(Activation, WithoutAnUpBranchMultipliesByOne) {
  std::vector<float> gate = {-2.f, 3.f}, out(2);
  activate({.kind = Activation::kReluSquared}, gate, {}, out);
  EXPECT_EQ(out, (std::vector<float>{0.f, 9.f}));
}

TEST(Activation, RefusesParametersThatMakeNoSense) {
  const std::vector<ActivationSpec> wrong = {
      silu(-1.f),
      silu(std::nanf("")),
      {.kind = Activation::kSwigluOai, .limit = 0.f},
      {.kind = Activation::kSwigluOai, .limit = 7.f, .alpha = kInfinity},
      {.kind = Activation::kSitu, .beta = 0.f},
      situ(-1.f)};
  for (const ActivationSpec& spec : wrong) EXPECT_THROW(spec.validate(), Error) << int(spec.kind);
  ActivationSpec nothing = silu(0.f), other = oai();
  nothing.limit_after = other.limit_after = true;
  EXPECT_THROW(nothing.validate(), Error);
  EXPECT_THROW(other.validate(), Error);
  for (const ActivationSpec& spec : every_activation()) EXPECT_NO_THROW(spec.validate());
}

TEST(Mlp, RefusesAGatedActivationWithoutAGate) {
  MlpSpec spec{.activation = oai(), .gated = false, .width = 8, .hidden = 16};
  EXPECT_THROW(spec.validate(), Error);
  spec.gated = true;
  EXPECT_NO_THROW(spec.validate());
  spec.hidden = 0;
  EXPECT_THROW(spec.validate(), Error);
}

TEST(Sigmoid, NeverOverflows) {
  EXPECT_EQ(sigmoid(0.f), 0.5f);  // so an output gate of 0 halves what it gates
  EXPECT_FLOAT_EQ(sigmoid(2.f), 0.880797078f);
  EXPECT_FLOAT_EQ(sigmoid(-2.f), 0.119202922f);
  EXPECT_EQ(sigmoid(1e4f), 1.f);
  EXPECT_EQ(sigmoid(-1e4f), 0.f);
  EXPECT_GT(sigmoid(-85.f), 0.f);
}

TEST(Softplus, IsTheIdentityAboveAndTheExponentialBelow) {
  EXPECT_FLOAT_EQ(softplus(-100.f), std::exp(-100.f));
  EXPECT_FLOAT_EQ(softplus(-1.f), 0.313261688f);
  EXPECT_FLOAT_EQ(softplus(0.f), 0.693147181f);
  EXPECT_FLOAT_EQ(softplus(20.f), 20.f);
  for (const float x : {89.f, 200.f, 1e4f}) EXPECT_EQ(softplus(x), x);
}

}  // namespace
}  // namespace lemma::algorithm
