// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/delta_rule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "algorithm/attention/test_rows.hpp"
#include "algorithm/norm.hpp"

namespace lemma::algorithm {
namespace {

using test::random_row;
using test::Row;

/// A text of random tokens for one head; keys of length one, decays of many sizes.
struct Text {
  Text(const DeltaShape& shape_in, std::size_t n, unsigned seed, float strongest_decay)
      : shape(shape_in), tokens(n) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform(0.f, 1.f);
    for (Token& token : tokens) {
      for (Row* row : {&token.query, &token.key}) {
        for (std::uint32_t i = 0; i < shape.key_dim; ++i) row->push_back(normal(generator));
        l2_normalize(*row, 1e-6f, *row);
      }
      for (std::uint32_t i = 0; i < shape.value_dim; ++i) token.value.push_back(normal(generator));
      for (std::size_t i = 0; i < shape.decays(); ++i) {
        token.decay.push_back(-strongest_decay * std::pow(uniform(generator), 4.f));
      }
      token.beta = uniform(generator);
    }
  }
  struct Token {
    Row query, key, value, decay;
    float beta = 0.f;
  };
  DeltaToken operator[](std::size_t t) const {
    const Token& token = tokens[t];
    return {token.query, token.key, token.value, token.decay, token.beta};
  }
  DeltaShape shape;
  std::vector<Token> tokens;
};

struct Result {
  Row matrix, out;  ///< the matrix after the text, and all outputs
};

Result step_by_step(const Text& text) {
  Result run{Row(text.shape.matrix_size(), 0.f), {}};
  Row out(text.shape.value_dim);
  for (std::size_t t = 0; t < text.tokens.size(); ++t) {
    delta_step(text.shape, text[t], run.matrix, out);
    run.out.insert(run.out.end(), out.begin(), out.end());
  }
  return run;
}

Result by_cells(const Text& text) {
  Result run{Row(text.shape.matrix_size(), 0.f), {}};
  Row cell(text.shape.cell_size(), std::nanf("")), out(text.shape.value_dim);
  for (std::size_t t = 0; t < text.tokens.size(); ++t) {
    delta_cell_step(text.shape, std::uint32_t(t % kDeltaCell), text[t], run.matrix, cell, out);
    run.out.insert(run.out.end(), out.begin(), out.end());
  }
  delta_cell_advance(text.shape, cell, std::uint32_t(text.tokens.size() % kDeltaCell), run.matrix);
  return run;
}

/// The largest |a - b| relative to the largest |b|.
double distance(const Row& a, const Row& b) {
  double worst = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    worst = std::max(worst, std::abs(double(a[i]) - double(b[i])));
    largest = std::max(largest, std::abs(double(b[i])));
  }
  return worst / largest;
}

TEST(DeltaRule, ReturnsWhatAnOrthonormalKeyWrote) {
  const DeltaShape shape{3, 2, false};
  Row matrix(6, 0.f), out(2);
  const Row none = {0.f};
  for (std::size_t i = 0; i < 3; ++i) {
    Row key(3, 0.f);
    key[i] = 1.f;
    const Row value = {float(i) + 1.f, -float(i)};
    delta_step(shape, {key, key, value, none, 1.f}, matrix, out);
    EXPECT_EQ(out, value);
  }
  const Row probe = {0.f, 1.f, 0.f}, zeros(2, 0.f);
  delta_step(shape, {probe, probe, zeros, none, 0.f}, matrix, out);
  EXPECT_EQ(out, (Row{2.f, -1.f})) << "later keys did not disturb the second";
}

TEST(DeltaRule, OverwritesTheValueOfAKeyThatComesAgain) {
  const DeltaShape shape{2, 1, false};
  Row matrix(2, 0.f), out(1);
  const Row key = {1.f, 0.f}, none = {0.f};
  for (const float value : {5.f, 7.f}) {
    delta_step(shape, {key, key, Row{value}, none, 1.f}, matrix, out);
    EXPECT_EQ(out[0], value);
  }
  EXPECT_EQ(matrix, (Row{7.f, 0.f}));
}

TEST(DeltaRule, OnlyForgetsWhereBetaIsZero) {
  const DeltaShape shape{2, 2, false};
  Row matrix = {1.f, 2.f, 3.f, 4.f}, out(2);
  const Row key = {1.f, 1.f}, half = {std::log(0.5f)};
  delta_step(shape, {key, key, Row{100.f, 100.f}, half, 0.f}, matrix, out);
  test::expect_near(matrix, {0.5f, 1.f, 1.5f, 2.f}, tolerance::kElementwise);
}

TEST(DeltaRule, ForgetsBeforeItAsksTheMatrix) {
  const DeltaShape shape{1, 1, false};
  Row matrix = {8.f}, out(1);
  delta_step(shape, {Row{1.f}, Row{1.f}, Row{0.f}, Row{std::log(0.25f)}, 0.5f}, matrix, out);
  EXPECT_FLOAT_EQ(matrix[0], 1.f) << "8 becomes 2, of which half is taken back; not 8 / 4 - 4";
}

TEST(DeltaRule, ByCellsIsTheStepsAtEveryLength) {
  for (const bool per_channel : {false, true}) {
    const DeltaShape shape{16, 8, per_channel};
    for (const std::size_t n : {1u, 2u, 63u, 64u, 65u, 127u, 128u, 129u, 200u}) {
      const Text text(shape, n, unsigned(n), 3.f);
      const Result want = step_by_step(text), got = by_cells(text);
      EXPECT_LT(distance(got.matrix, want.matrix), tolerance::kDeltaCells.absolute_of_max) << n;
      EXPECT_LT(distance(got.out, want.out), tolerance::kDeltaCells.absolute_of_max) << n;
    }
  }
}

TEST(DeltaRule, ByShorterCellsIsTheStepsToo) {
  const DeltaShape shape{8, 4, true};
  const Text text(shape, 131, 4, 1.f);
  const Result want = step_by_step(text);
  for (const std::uint32_t length : {1u, 4u, 63u}) {
    Row matrix(shape.matrix_size(), 0.f), cell(shape.cell_size()), out(4), all;
    for (std::size_t t = 0; t < text.tokens.size(); ++t) {
      const std::uint32_t place = std::uint32_t(t % length);
      delta_cell_step(shape, place, text[t], matrix, cell, out);
      all.insert(all.end(), out.begin(), out.end());
      if (place + 1 == length) delta_cell_advance(shape, cell, length, matrix);
    }
    EXPECT_LT(distance(all, want.out), length == 1 ? 1e-6 : 2e-5) << length;
  }
}

TEST(DeltaRule, ByCellsDoesNotDriftOverAHundredCells) {
  for (const float strongest : {0.02f, 20.f}) {
    const Text text({8, 4, true}, 120 * kDeltaCell + 17, 3, strongest);
    const Result want = step_by_step(text), got = by_cells(text);
    EXPECT_LT(distance(got.matrix, want.matrix), tolerance::kDeltaCells.absolute_of_max)
        << strongest;
  }
}

TEST(DeltaRule, ByCellsKeepsWeakDecaysSharpBehindAStrongOne) {
  // Running sums would carry -1e4 from the first row on, and with it an error of 1e-3.
  const DeltaShape shape{4, 4, true};
  Text text(shape, 40, 9, 0.1f);
  for (float& decay : text.tokens[1].decay) decay = -1e4f;
  EXPECT_LT(distance(by_cells(text).out, step_by_step(text).out), 2e-6);
}

TEST(DeltaRule, ByCellsStandsDecaysThatLeaveNothing) {
  const DeltaShape shape{4, 2, true};
  Text text(shape, 70, 11, 0.1f);
  for (float& decay : text.tokens[7].decay) decay = -std::numeric_limits<float>::infinity();
  const Result want = step_by_step(text), got = by_cells(text);
  EXPECT_LT(distance(got.out, want.out), 1e-5);
}

TEST(DeltaRule, OfOneSharedDecayIsThatOfEqualDecaysPerChannelToTheBit) {
  const Text shared({8, 4, false}, 100, 5, 2.f);
  Text each = shared;
  each.shape.decay_per_channel = true;
  for (auto& token : each.tokens) token.decay.assign(8, token.decay[0]);
  EXPECT_EQ(step_by_step(each).out, step_by_step(shared).out);
  EXPECT_EQ(by_cells(each).out, by_cells(shared).out);
}

TEST(DeltaRule, ReadsNoRowOfTheCellBeforeItsTime) {
  const Text text({4, 2, false}, 3, 6, 1.f);
  Row once(text.shape.cell_size(), std::nanf("")), matrix(8, 1.f), out(2);
  delta_cell_step(text.shape, 0, text[0], matrix, once, out);
  EXPECT_TRUE(std::isfinite(out[0]) && std::isfinite(out[1]));
  EXPECT_EQ(matrix, Row(8, 1.f)) << "the matrix stands still within a cell";
}

TEST(LogDecay, BoundedStaysAboveItsBound) {
  EXPECT_NEAR(std::exp(bounded_log_decay(1.f, 0.f, -5.f)), 0.082085, 1e-6);
  EXPECT_NEAR(std::exp(bounded_log_decay(1.f, 2.f, -5.f)), 0.012229, 1e-6);
  EXPECT_NEAR(std::exp(bounded_log_decay(1.f, -2.f, -5.f)), 0.551003, 1e-6);
  for (const float raw : {-80.f, -1.f, 0.f, 1.f, 80.f}) {
    const float log = bounded_log_decay(1.f, raw, -5.f);
    EXPECT_GE(log, -5.f);
    EXPECT_LT(log, 0.f);
  }
}

TEST(LogDecay, TakesTheRateWithEitherSign) {
  EXPECT_FLOAT_EQ(log_decay(2.f, 0.f), -2.f * std::log(2.f));
  EXPECT_EQ(log_decay(-2.f, 1.5f), log_decay(2.f, 1.5f));
  EXPECT_EQ(bounded_log_decay(-2.f, 1.5f, -5.f), bounded_log_decay(2.f, 1.5f, -5.f));
  EXPECT_TRUE(std::isnan(log_decay(std::nanf(""), 0.f)));
}

TEST(LogDecay, VanishesForALargeNegativeProjectionUnlessItIsBounded) {
  EXPECT_EQ(std::exp(log_decay(1.f, -200.f)), 1.f);
  EXPECT_LT(std::exp(bounded_log_decay(1.f, -14.f, -5.f)), 1.f);
}

TEST(GatedNorm, NormalisesEachHeadAndThenGates) {
  const Row weight = {2.f, 1.f};
  Row heads = {3.f, 4.f, 300.f, 400.f};
  gated_norm(OutputGate::kSigmoid, 0.f, weight, Row(4, 0.f), heads);
  const float root = std::sqrt(12.5f);
  test::expect_near(heads, {3.f / root, 2.f / root, 3.f / root, 2.f / root},
                    tolerance::kElementwise);
  Row silu = {3.f, 4.f}, sigmoid_gated = {3.f, 4.f};
  gated_norm(OutputGate::kSilu, 0.f, weight, Row(2, 3.f), silu);
  gated_norm(OutputGate::kSigmoid, 0.f, weight, Row(2, 3.f), sigmoid_gated);
  EXPECT_FLOAT_EQ(silu[0], 3.f * sigmoid_gated[0]);
}

}  // namespace
}  // namespace lemma::algorithm
