// SPDX-License-Identifier: Apache-2.0
// Expected numbers of the four-stream rows: the published vectors of an independent implementation
// of DeepSeek V4 (antirez/ds4). Three streams are the fewest that can show which way the matrix is
// used: a doubly stochastic 2 x 2 matrix is symmetric.
#include "algorithm/residual/hyper_connection.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "algorithm/attention/test_rows.hpp"

namespace lemma::algorithm {
namespace {

using test::changed;
using test::expect_refused;
using test::random_row;
using test::Row;
using Spec = HyperConnectionSpec;

Spec streams(std::uint32_t n, std::uint32_t width = 1, std::uint32_t iterations = 20) {
  Spec spec;
  spec.streams = n;
  spec.width = width;
  spec.iterations = iterations;
  return spec;
}

/// Coefficients with pre and post 0 and the given logits.
Row mixing(const Spec& spec, Row logits) {
  Row row(2 * spec.streams, 0.f);
  sinkhorn(spec, logits);
  row.insert(row.end(), logits.begin(), logits.end());
  return row;
}

Row merged(const Spec& spec, const Row& coefficients, const Row& state, const Row& y) {
  Row out(state.size());
  hyper_merge(spec, HyperCoefficients(spec, coefficients), state, y, out);
  return out;
}

TEST(HyperConnection, MixesWithTheTransposedMatrix) {
  const Row logits = {2, 0, 0, 0, 0, 3, 1, 0, 0}, state = {1, 10, 100}, none = {0};
  const Row twenty = merged(streams(3), mixing(streams(3), logits), state, none);
  const Row want = {36.724447f, 53.642609f, 20.632838f};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(twenty[i], want[i], 2e-5f * want[i]) << i;
  const Spec once = streams(3, 1, 1);
  const Row one = merged(once, mixing(once, logits), state, none);
  const Row want_one = {41.786552f, 59.806716f, 24.753900f};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(one[i], want_one[i], 2e-5f * want_one[i]) << i;
}

TEST(HyperConnection, OfFourStreamsGivesThePublishedCoefficients) {
  const Spec spec = streams(4);
  Row mix(24), base(24);
  for (std::size_t i = 0; i < 24; ++i) {
    mix[i] = 2.f * std::sin(0.7f * float(i));
    base[i] = 0.1f * float(i % 5) - 0.2f;
  }
  hyper_split(spec, base, Row{0.5f, 0.25f, 1.5f}, mix);
  const Row want = {0.45016703f,  0.632794023f, 0.72818923f,  0.723764956f, 1.18170667f,
                    0.814477801f, 0.738335967f, 0.759209394f, 0.00657242f,  0.11057501f,
                    0.50636464f,  0.37635624f,  0.64371395f,  0.31089628f,  0.04398367f,
                    0.00157483f,  0.00599492f,  0.04263103f,  0.33323982f,  0.61796647f,
                    0.34371778f,  0.53589672f,  0.11641084f,  0.00410155f};
  for (std::size_t i = 0; i < 24; ++i) EXPECT_NEAR(mix[i], want[i], 3e-7f) << i;
  const Row after = merged(spec, mix, {1, 10, 100, 1000}, {1});
  const Row want_after = {351.942688f, 544.193848f, 151.419357f, 67.0495071f};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(after[i], want_after[i], 1e-6f * 544.f) << i;
}

TEST(HyperConnection, WithoutParametersWeighsAllStreamsAlike) {
  const Spec spec = streams(3, 4);
  Row out(spec.coefficients()), scratch(12);
  hyper_coefficients(spec, {Row(15 * 12, 0.f), Row(15, 0.f), Row(3, 1.f)}, random_row(12, 1),
                     scratch, out);
  const HyperCoefficients c(spec, out);
  for (const float pre : c.pre) EXPECT_EQ(pre, 0.5f + 1e-6f);
  for (const float post : c.post) EXPECT_EQ(post, 1.f);
  for (const float m : c.matrix) EXPECT_NEAR(m, 1.f / 3.f, 1e-6f);
}

TEST(HyperConnection, HasColumnsThatSumToOneAndInTheEndRowsToo) {
  for (const std::uint32_t iterations : {1u, 2u, 50u}) {
    const Spec spec = streams(4, 1, iterations);
    Row matrix = random_row(16, 3);
    sinkhorn(spec, matrix);
    double worst_row = 0.0;
    for (std::size_t a = 0; a < 4; ++a) {
      float column = 0.f, row = 0.f;
      for (std::size_t b = 0; b < 4; ++b) column += matrix[b * 4 + a], row += matrix[a * 4 + b];
      EXPECT_NEAR(column, 1.f, 1e-5f) << iterations;
      worst_row = std::max(worst_row, std::abs(double(row) - 1.0));
    }
    if (iterations == 1) {
      EXPECT_GT(worst_row, 1e-2);
    }
    if (iterations == 50) {
      EXPECT_LT(worst_row, 1e-5);
    }
  }
}

TEST(HyperConnection, CountsTheSoftmaxAsTheFirstRowStep) {
  // With an eps of a half it shows: entries are 1/2 + 1/2, then 1 / (2 + 1/2) by columns alone.
  Row matrix(4, 0.f);
  sinkhorn(changed(streams(2, 1, 1), &Spec::eps, 0.5f), matrix);
  EXPECT_EQ(matrix, Row(4, 0.4f));
  Row again(4, 0.f);
  sinkhorn(changed(streams(2, 1, 2), &Spec::eps, 0.5f), again);
  for (const float entry : again) EXPECT_NEAR(entry, 0.4f / 1.3f / (0.8f / 1.3f + 0.5f), 1e-6f);
}

TEST(HyperConnection, KeepsTheSumOfTheStreamsWhereRowsSumToOne) {
  const Spec spec = streams(3, 5, 100);
  const Row state = random_row(15, 5);
  const Row after = merged(spec, mixing(spec, random_row(9, 6)), state, Row(5, 0.f));
  for (std::size_t d = 0; d < 5; ++d) {
    EXPECT_NEAR(after[d] + after[5 + d] + after[10 + d], state[d] + state[5 + d] + state[10 + d],
                3e-5f);
  }
}

TEST(HyperConnection, OfOneStreamIsAPlainResidual) {
  const Spec spec = streams(1, 3);
  const Row state = {1.f, -2.f, 3.f}, y = {0.5f, 0.25f, -4.f};
  Row out(3), scratch(3);
  hyper_coefficients(spec, {Row(9, 0.f), Row(3, 0.f), Row(3, 1.f)}, state, scratch, out);
  const Row after = merged(spec, out, state, y);
  for (std::size_t d = 0; d < 3; ++d) EXPECT_NEAR(after[d], state[d] + y[d], 5e-6f);
}

TEST(HyperConnection, NormalisesOverAllStreamsAtOnce) {
  const Spec spec = streams(3, 2);
  const Row fn = random_row(15 * 6, 7), base(15, 0.f), scale(3, 1.f);
  Row state = random_row(6, 8), scratch(6), once(15), scaled(15), lopsided(15);
  hyper_coefficients(spec, {fn, base, scale}, state, scratch, once);
  for (float& x : state) x *= 8.f;
  hyper_coefficients(spec, {fn, base, scale}, state, scratch, scaled);
  test::expect_near(scaled, once, tolerance::hyper_connection(6));
  state[0] *= 8.f, state[1] *= 8.f;  // one stream alone does change the coefficients
  hyper_coefficients(spec, {fn, base, scale}, state, scratch, lopsided);
  EXPECT_GT(std::abs(lopsided[0] - once[0]), 1e-3f);
}

TEST(HyperConnection, ReducesTheStreamsAsTheyAre) {
  const Spec spec = streams(3, 2);
  Row coefficients(15, 0.f);
  coefficients[0] = 1.f, coefficients[1] = 10.f, coefficients[2] = 100.f;
  Row out(2);
  hyper_reduce(spec, HyperCoefficients(spec, coefficients), Row{1, 2, 3, 4, 5, 6}, out);
  EXPECT_EQ(out, (Row{531.f, 642.f}));
}

TEST(HyperConnection, EntersAsCopiesAndLeavesAsTheirMean) {
  const Spec spec = streams(3, 2);
  Row state(6), out(2), scratch(6);
  hyper_enter(spec, Row{3.f, 5.f}, state);
  EXPECT_EQ(state, (Row{3, 5, 3, 5, 3, 5}));
  hyper_exit_mean(spec, Row{1, 2, 3, 4, 5, 9}, out);
  EXPECT_EQ(out, (Row{3.f, 5.f}));
  hyper_exit(spec, Row(18, 0.f), Row{0.f, 100.f, -100.f}, 1.f, Row{1, 2, 3, 4, 5, 9}, scratch, out);
  EXPECT_NEAR(out[0], 0.5f + 3.f, 1e-5f)
      << "half of the first, all of the second, none of the last";
  EXPECT_NEAR(out[1], 1.f + 4.f, 2e-5f);
}

TEST(HyperConnection, ScalesEachProductOfTheExit) {
  const Spec spec = streams(2, 1);
  Row scratch(2), out(1);
  const Row state = {3.f, 3.f};  // normed: 1, 1
  hyper_exit(spec, Row{1, 1, 0, 0}, Row{0.f, 0.f}, 0.25f, state, scratch, out);
  EXPECT_NEAR(out[0], 3.f / (1.f + std::exp(-0.5f)) + 1.5f, 1e-5f);
}

TEST(HyperConnection, RefusesWhatMakesNoSense) {
  const Spec spec = streams(4, 8);
  EXPECT_NO_THROW(spec.validate());
  expect_refused(changed(spec, &Spec::streams, 0u), "streams");
  expect_refused(changed(spec, &Spec::streams, 65u), "streams");
  expect_refused(changed(spec, &Spec::width, 0u), "width");
  expect_refused(changed(spec, &Spec::width, 0x40000000u), "width");
  expect_refused(changed(spec, &Spec::iterations, 0u), "iterations");
  expect_refused(changed(spec, &Spec::eps, 0.f), "eps");
  expect_refused(changed(spec, &Spec::eps, std::nanf("")), "eps");
  expect_refused(changed(spec, &Spec::norm_eps, -1.f), "norm eps");
}

}  // namespace
}  // namespace lemma::algorithm
