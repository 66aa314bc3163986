// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/kda.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "algorithm/attention/gated_delta_net.hpp"
#include "algorithm/attention/test_rows.hpp"
#include "algorithm/ffn/dense_mlp.hpp"

namespace lemma::algorithm {
namespace {

using test::changed;
using test::expect_refused;
using test::random_row;
using test::Row;
using Spec = KdaSpec;

Spec small(float bound = 0.f) {
  Spec spec;
  spec.heads = 2;
  spec.dim = 8;
  spec.kernel = 4;
  spec.lower_bound = bound;
  return spec;
}

struct Layer {
  explicit Layer(const Spec& s)
      : spec(s),
        convolution(random_row(std::size_t(s.channels()) * s.kernel, 1)),
        rate(random_row(s.heads, 2)),
        dt_bias(random_row(std::size_t(s.heads) * s.dim, 3)),
        norm(random_row(s.dim, 4)) {}
  struct State {
    Row matrix, history, cells;
    std::uint32_t next = 0;
  };
  State fresh(bool cells) const {
    return {Row(spec.heads * spec.shape().matrix_size(), 7.f),
            Row(spec.convolution().history_size(), 7.f),
            Row(cells ? spec.heads * spec.shape().cell_size() : 0, 7.f), 0};
  }
  Row run(State& state, std::uint32_t position, const Row& forget) const {
    const std::size_t width = std::size_t(spec.heads) * spec.dim;
    const Row qkv = random_row(spec.channels(), 100 + position),
              beta = random_row(spec.heads, 200 + position),
              gate = random_row(width, 300 + position);
    RecurrentState view{state.next, state.matrix, state.history, state.cells};
    Row scratch(spec.scratch_size()), out(width);
    EXPECT_TRUE(kda(spec, {convolution, rate, dt_bias, norm}, position, {qkv, forget, beta, gate},
                    view, scratch, out));
    state.next = view.next;
    return out;
  }
  Row run(State& state, std::uint32_t position) const {
    return run(state, position, random_row(std::size_t(spec.heads) * spec.dim, 400 + position));
  }
  Spec spec;
  Row convolution, rate, dt_bias, norm;
};

TEST(Kda, WithOneDecayPerHeadIsAGatedDeltaNetButForItsOutputGate) {
  Layer layer(small());
  std::fill(layer.dt_bias.begin(), layer.dt_bias.end(), 0.25f);
  GatedDeltaNetSpec other;
  other.key_heads = other.value_heads = 2;
  other.key_dim = other.value_dim = 8;
  other.kernel = 4;
  const Row alpha = {0.7f, -1.3f}, bias = {0.25f, 0.25f};
  Row forget(8, alpha[0]);
  forget.insert(forget.end(), 8, alpha[1]);

  Layer::State state = layer.fresh(false);
  Row matrix(128), history(layer.spec.convolution().history_size());
  RecurrentState view{0, matrix, history, {}};
  Row scratch(other.channels()), out(16);
  for (std::uint32_t p = 0; p < 5; ++p) {
    const Row got = layer.run(state, p, forget);
    const Row qkv = random_row(48, 100 + p), beta = random_row(2, 200 + p),
              gate = random_row(16, 300 + p);
    ASSERT_TRUE(gated_delta_net(other, {layer.convolution, layer.rate, bias, layer.norm}, p,
                                {qkv, alpha, beta, gate}, view, scratch, out));
    ASSERT_EQ(state.matrix, matrix) << p;
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_NEAR(got[i] * gate[i], out[i], 1e-5f * std::abs(out[i])) << "silu is g sigmoid(g)";
    }
  }
}

TEST(Kda, AddsTheBiasBeforeTheRate) {
  EXPECT_EQ(kda_log_decay(small(-5.f), 2.f, 0.5f, 0.25f), -5.f * sigmoid(1.5f));
  EXPECT_EQ(kda_log_decay(small(), 2.f, 0.5f, 0.25f), -2.f * softplus(0.75f));
}

TEST(Kda, KeepsHeadsApart) {
  Spec pair = small(), single = changed(small(), &Spec::heads, 1u);
  pair.kernel = single.kernel = 1;
  const Row qkv = random_row(48, 31), forget = random_row(16, 32), dt_bias = random_row(16, 33),
            gate = random_row(16, 34), norm = random_row(8, 35), beta = {0.3f, -0.8f},
            rate = {0.5f, 2.f};
  Row matrix(128), scratch(pair.scratch_size()), out(16);
  RecurrentState state{0, matrix, {}, {}};
  for (const std::uint32_t p : {0u, 1u}) {  // the decay is seen from the second token on
    ASSERT_TRUE(kda(pair, {Row(48, 1.f), rate, dt_bias, norm}, p, {qkv, forget, beta, gate}, state,
                    scratch, out));
  }
  for (std::size_t h = 0; h < 2; ++h) {
    const auto of = [h](const Row& row, std::size_t n) { return std::span(row).subspan(h * n, n); };
    Row own;
    for (std::size_t part = 0; part < 48; part += 16) {
      own.insert(own.end(), qkv.begin() + std::ptrdiff_t(part + 8 * h),
                 qkv.begin() + std::ptrdiff_t(part + 8 * h + 8));
    }
    Row alone(64), single_scratch(single.scratch_size()), single_out(8);
    RecurrentState single_state{0, alone, {}, {}};
    for (const std::uint32_t p : {0u, 1u}) {
      ASSERT_TRUE(kda(single, {Row(24, 1.f), of(rate, 1), of(dt_bias, 8), norm}, p,
                      {own, of(forget, 8), of(beta, 1), of(gate, 8)}, single_state, single_scratch,
                      single_out));
    }
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), matrix.begin() + std::ptrdiff_t(64 * h)));
    EXPECT_TRUE(
        std::equal(single_out.begin(), single_out.end(), out.begin() + std::ptrdiff_t(8 * h)));
  }
}

TEST(Kda, ComesToTheSameBitsHoweverATextIsCut) {
  for (const float bound : {0.f, -5.f}) {
    const Layer layer(small(bound));
    for (const bool cells : {false, true}) {
      Layer::State whole = layer.fresh(cells), state;
      std::vector<Row> want, histories;
      for (std::uint32_t p = 0; p < 7; ++p) {
        want.push_back(layer.run(whole, p));
        histories.push_back(whole.history);
      }
      test::for_all_cuts(
          7, [&](std::uint32_t) { state = layer.fresh(cells); },
          [&](std::uint32_t first, std::uint32_t end) {
            Layer::State restored = state;
            std::fill(state.matrix.begin(), state.matrix.end(), 9.f);
            for (std::uint32_t p = first; p < end; ++p) ASSERT_EQ(layer.run(restored, p), want[p]);
            ASSERT_EQ(restored.history, histories[end - 1]);
            state = restored;
          });
    }
  }
}

TEST(Kda, ByCellsIsItsStepForm) {
  for (const float bound : {0.f, -5.f}) {
    const Layer layer(small(bound));
    Layer::State steps = layer.fresh(false), cells = layer.fresh(true);
    for (std::uint32_t p = 0; p < 150; ++p) {
      const Row want = layer.run(steps, p), got = layer.run(cells, p);
      test::expect_near(got, want, tolerance::kDeltaCells + tolerance::kNorm);
    }
  }
}

TEST(Kda, WithoutABoundNeedNotForgetAndWithOneMust) {
  const Row silent(16, -300.f);
  for (const float bound : {0.f, -5.f}) {
    Layer layer(small(bound));
    std::fill(layer.rate.begin(), layer.rate.end(), 0.04f);
    Layer::State state = layer.fresh(false);
    layer.run(state, 0);
    const float before = state.matrix[0];
    Row qkv(48, 0.f), out(16), scratch(layer.spec.scratch_size());
    std::fill(state.history.begin(), state.history.end(), 0.f);  // so that the key is zero
    RecurrentState view{state.next, state.matrix, state.history, {}};
    ASSERT_TRUE(kda(layer.spec, {layer.convolution, layer.rate, layer.dt_bias, layer.norm}, 1,
                    {qkv, silent, Row(2, 0.f), Row(16, 0.f)}, view, scratch, out));
    if (bound == 0.f) {
      EXPECT_NEAR(state.matrix[0], before, 1e-7f);
    } else {
      EXPECT_LT(std::abs(state.matrix[0]), std::abs(before));
      EXPECT_NEAR(state.matrix[0], before, 1e-4f * std::abs(before));
    }
  }
}

TEST(Kda, MayUseKeysAsTheyAre) {
  const Layer plain(changed(small(), &Spec::normalize_keys, false)), normed(small());
  Layer::State a = plain.fresh(false), b = normed.fresh(false);
  EXPECT_NE(plain.run(a, 0), normed.run(b, 0));
}

TEST(Kda, DeclaresItsMatricesAndItsHistories) {
  const Slots slots = small().slots();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0].width, 2u * 8 * 8);
  EXPECT_EQ(slots[1].width, 3u * 3 * 16);
}

TEST(Kda, RefusesWhatMakesNoSense) {
  EXPECT_NO_THROW(small().validate());
  EXPECT_NO_THROW(small(-5.f).validate());
  expect_refused(changed(small(), &Spec::heads, 0u), "heads");
  expect_refused(changed(small(), &Spec::dim, 0u), "dim");
  expect_refused(changed(small(), &Spec::dim, 0x10000u), "dim");
  Spec many = small();  // matrices of one number, but cells of 192
  many.heads = 1u << 27;
  many.dim = 1;
  expect_refused(many, "dim");
  expect_refused(changed(small(), &Spec::kernel, 0u), "kernel");
  expect_refused(small(5.f), "lower bound");
  expect_refused(small(-test::kInfinity), "lower bound");
  expect_refused(small(std::nanf("")), "lower bound");
  expect_refused(changed(small(), &Spec::l2_eps, -1.f), "l2 eps");
  expect_refused(changed(small(), &Spec::norm_eps, test::kInfinity), "norm eps");
}

}  // namespace
}  // namespace lemma::algorithm
