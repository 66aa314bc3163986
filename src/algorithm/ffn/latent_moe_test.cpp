// SPDX-License-Identifier: Apache-2.0
#include "algorithm/ffn/latent_moe.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "algorithm/attention/test_rows.hpp"

namespace lemma::algorithm {
namespace {

using test::Ids;
using test::random_row;
using test::Row;

LatentMoeSpec small(std::uint32_t width, std::uint32_t latent) {
  LatentMoeSpec spec;
  spec.routing.experts = 4;
  spec.routing.chosen = 2;
  spec.expert.width = latent;
  spec.expert.hidden = 3;
  spec.width = width;
  return spec;
}

/// An expert that is easy to follow: its output is (its id + 1) times the square of its input.
void squares(std::uint32_t e, std::span<const float> x, std::span<float> y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = float(e + 1) * x[i] * x[i];
}

Row latent(const LatentMoeSpec& spec, const LatentMoeWeights& weights, const Row& x,
           const Row& route_weights = {0.25f, 0.5f}) {
  Row out(spec.width), scratch(spec.scratch_size());
  combine_latent(spec, weights, x, Ids{3, 1}, route_weights, squares, scratch, out);
  return out;
}

TEST(LatentMoe, WithIdentitiesAndNoNormIsThePlainOne) {
  Row identity(25, 0.f);
  for (std::size_t i = 0; i < 5; ++i) identity[6 * i] = 1.f;
  const LatentMoeSpec spec = small(5, 5);
  const Row x = random_row(5, 1);
  Row want(5), scratch(10);
  combine_experts({.routing = spec.routing, .expert = spec.expert, .shared = {}}, x, Ids{3, 1},
                  Row{0.25f, 0.5f}, squares, scratch, want);
  EXPECT_EQ(latent(spec, {identity, {}, identity}, x), want);
}

TEST(LatentMoe, WorksBetweenItsTwoProjections) {
  const Row down = {1, 1, 0, 0, 0, 1}, up = {1, 0, 0, 1, 2, 2};  // 3 -> 2 -> 3
  const Row out = latent(small(3, 2), {down, {}, up}, {1, 2, 3});
  // The latent is (3, 3); experts 3 and 1 give (4 / 4 + 2 / 2) * 9 each.
  EXPECT_EQ(out, (Row{18, 18, 72}));
}

TEST(LatentMoe, NormalisesTheSumAndNotTheParts) {
  LatentMoeSpec spec = small(2, 2);
  spec.norm = true;
  spec.norm_eps = 0.f;
  const Row identity = {1, 0, 0, 1}, norm = {1, 10};
  const Row x = {1, 2}, out = latent(spec, {identity, norm, identity}, x);
  const float root = std::sqrt((4.f + 64.f) / 2.f);  // of (2, 8)
  test::expect_near(out, {2.f / root, 80.f / root}, tolerance::kNorm);
  const Row doubled = latent(spec, {identity, norm, identity}, x, {0.5f, 1.f});
  test::expect_near(doubled, out, tolerance::kNorm);  // so it is not linear in the weights
}

TEST(LatentMoe, RefusesWhatMakesNoSense) {
  EXPECT_NO_THROW(small(8, 4).validate());
  test::expect_refused(small(0, 4), "width");
  test::expect_refused(small(8, 0), "width");
  LatentMoeSpec spec = small(8, 4);
  spec.norm_eps = -1.f;
  test::expect_refused(spec, "norm eps");
  spec = small(8, 4);
  spec.shared = spec.expert;
  test::expect_refused(spec, "shared width");
  spec.shared->width = 8;
  EXPECT_NO_THROW(spec.validate());
}

}  // namespace
}  // namespace lemma::algorithm
