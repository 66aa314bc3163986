// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/gated_delta_net.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithm/attention/test_rows.hpp"

namespace lemma::algorithm {
namespace {

using test::changed;
using test::expect_refused;
using test::random_row;
using test::Row;
using Spec = GatedDeltaNetSpec;

Spec small() {
  Spec spec;
  spec.key_heads = 2;
  spec.value_heads = 4;
  spec.key_dim = 8;
  spec.value_dim = 6;
  spec.kernel = 4;
  return spec;
}

/// Random weights and rows of a spec, and a state with blocks of its own.
struct Layer {
  explicit Layer(const Spec& s)
      : spec(s),
        convolution(random_row(std::size_t(s.channels()) * s.kernel, 1)),
        rate(random_row(s.value_heads, 2)),
        dt_bias(random_row(s.value_heads, 3)),
        norm(random_row(s.value_dim, 4)) {}
  struct State {
    Row matrix, history, cells;
    std::uint32_t next = 0;
  };
  State fresh(bool cells) const {
    const std::size_t heads = spec.value_heads;
    return {Row(heads * spec.shape().matrix_size(), 7.f),
            Row(spec.convolution().history_size(), 7.f),
            Row(cells ? heads * spec.shape().cell_size() : 0, 7.f), 0};
  }
  Row run(State& state, std::uint32_t position) const {
    const std::size_t heads = spec.value_heads, width = heads * spec.value_dim;
    const Row qkv = random_row(spec.channels(), 100 + position),
              alpha = random_row(heads, 200 + position), beta = random_row(heads, 300 + position),
              gate = random_row(width, 400 + position);
    RecurrentState view{state.next, state.matrix, state.history, state.cells};
    Row scratch(spec.channels()), out(width);
    EXPECT_TRUE(gated_delta_net(spec, {convolution, rate, dt_bias, norm}, position,
                                {qkv, alpha, beta, gate}, view, scratch, out));
    state.next = view.next;
    return out;
  }
  Spec spec;
  Row convolution, rate, dt_bias, norm;
};

TEST(GatedDeltaNet, GivesTheNumbersOfAHandComputedLayer) {
  Spec spec;
  spec.key_heads = spec.value_heads = 1;
  spec.key_dim = 2;
  spec.value_dim = 1;
  spec.kernel = 1;
  const Row ones(5, 1.f), zero = {0.f}, one = {1.f};
  const Row qkv = {1.f, 0.f, 1.f, 0.f, 2.f};  // the same key and query, value 2
  Row matrix(2), scratch(5), out(1);
  RecurrentState state{0, matrix, {}, {}};
  const GatedDeltaNetWeights weights{ones, one, zero, one};
  ASSERT_TRUE(gated_delta_net(spec, weights, 0, {qkv, zero, zero, one}, state, scratch, out));
  EXPECT_NEAR(scratch[4], 1.761594f, 1e-6f);
  EXPECT_NEAR(matrix[0], 0.880796f, 2e-6f);
  EXPECT_EQ(matrix[1], 0.f);
  EXPECT_NEAR(matrix[0] * scratch[0], 0.622816f, 2e-6f);
  EXPECT_NEAR(out[0], 0.731058f, 2e-6f);
  ASSERT_TRUE(gated_delta_net(spec, weights, 1, {qkv, zero, zero, one}, state, scratch, out));
  EXPECT_NEAR(matrix[0], 1.100996f, 2e-6f);
  EXPECT_NEAR(matrix[0] * scratch[0], 0.778521f, 2e-6f);
}

TEST(GatedDeltaNet, ReadsKeyHeadsInGroupsOrInTurns) {
  Spec spec = small();
  const auto heads = [&] {
    test::Ids ids;
    for (std::uint32_t h = 0; h < 4; ++h) ids.push_back(spec.key_head(h));
    return ids;
  };
  EXPECT_EQ(heads(), (test::Ids{0, 0, 1, 1}));
  spec.mapping = KeyHeads::kTiled;
  EXPECT_EQ(heads(), (test::Ids{0, 1, 0, 1}));
}

TEST(GatedDeltaNet, UsesTheMappingOfItsSpec) {
  Layer grouped(small()), tiled(changed(small(), &Spec::mapping, KeyHeads::kTiled));
  Layer::State a = grouped.fresh(false), b = tiled.fresh(false);
  const Row x = grouped.run(a, 0), y = tiled.run(b, 0);
  EXPECT_TRUE(std::equal(x.begin(), x.begin() + 6, y.begin())) << "head 0 reads key head 0";
  EXPECT_FALSE(std::equal(x.begin() + 6, x.begin() + 12, y.begin() + 6)) << "head 1 does not";
}

TEST(GatedDeltaNet, IsThatOfRepeatedKeyHeads) {
  // Four key heads that repeat two as the mapping says give the same bits as the two.
  for (const KeyHeads mapping : {KeyHeads::kGrouped, KeyHeads::kTiled}) {
    Spec spec = changed(small(), &Spec::mapping, mapping);
    spec.kernel = 1;
    const Spec wide = changed(spec, &Spec::key_heads, 4u);
    const Row qkv = random_row(spec.channels(), 21), all = random_row(24, 22);
    const std::span<const float> any(all);
    Row repeated;
    for (const std::size_t part : {0u, 16u}) {
      for (std::uint32_t h = 0; h < 4; ++h) {
        const auto head = std::span(qkv).subspan(part + spec.key_head(h) * 8, 8);
        repeated.insert(repeated.end(), head.begin(), head.end());
      }
    }
    repeated.insert(repeated.end(), qkv.begin() + 32, qkv.end());
    const auto run = [&](const Spec& s, const Row& input) {
      Row matrix(4 * 48), scratch(s.channels()), out(24);
      RecurrentState state{0, matrix, {}, {}};
      const Row ones(s.channels(), 1.f);
      EXPECT_TRUE(gated_delta_net(s, {ones, any.first(4), any.last(4), any.first(6)}, 0,
                                  {input, any.first(4), any.last(4), any}, state, scratch, out));
      return matrix;
    };
    EXPECT_EQ(run(spec, qkv), run(wide, repeated));
  }
}

TEST(GatedDeltaNet, ComesToTheSameBitsHoweverATextIsCut) {
  const Layer layer(small());
  constexpr std::uint32_t kRows = 9;
  for (const bool cells : {false, true}) {
    Layer::State whole = layer.fresh(cells);
    std::vector<Row> want;
    std::vector<Row> histories;
    for (std::uint32_t p = 0; p < kRows; ++p) {
      want.push_back(layer.run(whole, p));
      histories.push_back(whole.history);
    }
    Layer::State state;
    test::for_all_cuts(
        kRows, [&](std::uint32_t) { state = layer.fresh(cells); },
        [&](std::uint32_t first, std::uint32_t end) {
          Layer::State restored = state;  // a chunk begins from a snapshot in other memory
          std::fill(state.matrix.begin(), state.matrix.end(), 9.f);
          for (std::uint32_t p = first; p < end; ++p) ASSERT_EQ(layer.run(restored, p), want[p]);
          ASSERT_EQ(restored.history, histories[end - 1]);
          state = restored;
        });
  }
}

TEST(GatedDeltaNet, ByCellsIsItsStepForm) {
  const Layer layer(small());
  Layer::State steps = layer.fresh(false), cells = layer.fresh(true);
  for (std::uint32_t p = 0; p < 200; ++p) {
    const Row want = layer.run(steps, p), got = layer.run(cells, p);
    test::expect_near(got, want, tolerance::kDeltaCells + tolerance::kNorm);
  }
}

TEST(GatedDeltaNet, RefusesAPositionThatIsNotNext) {
  const Layer layer(small());
  Layer::State state = layer.fresh(false);
  layer.run(state, 0);
  const Layer::State before = state;
  const Row row = random_row(200, 1);
  const std::span<const float> any(row);
  Row scratch(layer.spec.channels()), out(24);
  for (const std::uint32_t position : {0u, 2u}) {
    RecurrentState view{state.next, state.matrix, state.history, state.cells};
    EXPECT_FALSE(gated_delta_net(
        layer.spec, {layer.convolution, layer.rate, layer.dt_bias, layer.norm}, position,
        {any.first(layer.spec.channels()), any.first(4), any.first(4), any.first(24)}, view,
        scratch, out));
    EXPECT_EQ(view.next, 1u);
    EXPECT_EQ(state.matrix, before.matrix);
    EXPECT_EQ(state.history, before.history);
  }
}

TEST(GatedDeltaNet, DeclaresItsMatricesAndItsHistory) {
  const Slots slots = small().slots();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0].kind, SlotKind::kFixed);
  EXPECT_EQ(slots[0].width, 4u * 8 * 6);
  EXPECT_EQ(slots[1].width, 3u * (2 * 2 * 8 + 4 * 6));
  Spec full;  // 16 key and 32 value heads of 128
  full.key_heads = 16;
  full.value_heads = 32;
  full.key_dim = full.value_dim = 128;
  full.kernel = 4;
  EXPECT_EQ(full.slots()[0].width, 524288u);
  EXPECT_EQ(full.slots()[1].width, 24576u);
  EXPECT_EQ(changed(full, &Spec::kernel, 1u).slots().size(), 1u);
  const Slots cells = full.slots(DeltaForm::kCells);
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_EQ(cells[2].width, 32u * 64 * (128 + 1 + 128));
}

TEST(GatedDeltaNet, RefusesWhatMakesNoSense) {
  EXPECT_NO_THROW(small().validate());
  expect_refused(changed(small(), &Spec::key_heads, 0u), "key heads");
  expect_refused(changed(small(), &Spec::value_heads, 3u), "value heads");
  expect_refused(changed(small(), &Spec::value_heads, 0u), "value heads");
  expect_refused(changed(small(), &Spec::key_dim, 0u), "key dim");
  expect_refused(changed(small(), &Spec::key_dim, 0x80000000u), "key dim");
  expect_refused(changed(small(), &Spec::value_dim, 0u), "value dim");
  expect_refused(changed(small(), &Spec::value_dim, 0x20000000u), "value dim");
  Spec many = small();  // matrices of one number, but cells of 192
  many.key_heads = many.value_heads = 1u << 27;
  many.key_dim = many.value_dim = 1;
  expect_refused(many, "value dim");
  expect_refused(changed(small(), &Spec::kernel, 0u), "kernel");
  expect_refused(changed(small(), &Spec::l2_eps, -1.f), "l2 eps");
  expect_refused(changed(small(), &Spec::norm_eps, std::nanf("")), "norm eps");
}

}  // namespace
}  // namespace lemma::algorithm
