// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/dsa.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithm/attention/test_rows.hpp"

namespace lemma::algorithm {
namespace {

using namespace test;

DsaSpec small(std::uint32_t top_k = 4) {
  DsaSpec spec;
  spec.attention = {.heads = 2, .q_rank = 8, .latent_rank = 16, .nope_dim = 4, .rope_dim = 2};
  spec.attention.value_dim = 4;
  spec.attention.scale = 0.4f;
  spec.indexer = {.heads = 2, .dim = 4, .rope_dim = 2, .top_k = top_k};
  return spec;
}

DsaSpec pooling(std::uint32_t kpool, std::uint32_t top_k, bool tail) {
  DsaSpec spec = small(top_k);
  spec.indexer = {.heads = 1, .dim = 1, .top_k = top_k};
  spec.kpool = kpool;
  spec.always_select_tail = tail;
  return spec;
}

std::optional<Ids> choose(const DsaSpec& spec, std::span<const float> query,
                          std::span<const float> weights, std::uint32_t position,
                          const RowReader& key) {
  Row scores(position + 1);
  Ids tokens(spec.list_limit());
  const auto count = select_tokens(spec, query, weights, position, key, scores, tokens);
  if (!count) return std::nullopt;
  tokens.resize(*count);
  return tokens;
}

/// With one head of width 1, query and weight 1, keys of at least 0 are the scores.
std::optional<Ids> choose_by(const DsaSpec& spec, std::uint32_t position, const Row& keys) {
  return choose(spec, Row{1}, Row{1}, position, rows_of(keys, 1));
}

TEST(SelectTokens, NeverTakesAFutureToken) {
  DsaSpec spec = pooling(0, 2, false);
  const Row keys = {5, 1, 3, 1e30f, 1e30f};
  EXPECT_EQ(choose_by(spec, 2, keys), (Ids{0, 2}));
  EXPECT_EQ(choose_by(spec, 3, keys), (Ids{0, 3}));
}

TEST(SelectTokens, TakesEveryTokenUpToK) {
  const DsaSpec spec = small(4);
  const Row keys = random_row(10 * 4, 1), query = random_row(8, 2), weights = random_row(2, 3);
  for (std::uint32_t p = 0; p < 10; ++p) {
    const Ids tokens = choose(spec, query, weights, p, rows_of(keys, 4)).value();
    EXPECT_EQ(tokens.size(), std::min(p + 1, 4u));
    EXPECT_TRUE(std::is_sorted(tokens.begin(), tokens.end()));
    EXPECT_LE(tokens.back(), p);
  }
}

TEST(SelectTokens, RefusesScoresThatAreNotFinite) {
  const float nan = std::nanf("");
  EXPECT_FALSE(choose_by(pooling(0, 2, false), 3, {1, nan, 2, 3}).has_value());
  EXPECT_FALSE(choose_by(pooling(2, 2, true), 4, {1, nan}).has_value());
}

/// Attention of every row over its own list, token by token as a text grows.
Row sparse_attention(const DsaSpec& spec, std::uint32_t n) {
  const MlaSpec& mla = spec.attention;
  const Row z = random_row(n * mla.latent_rank, 1), kr = random_row(n * mla.rope_dim, 2);
  const Row q = random_row(n * mla.query_dim(), 3), keys = random_row(n * spec.indexer.dim, 4);
  const Row iq = random_row(n * 8, 5), w = random_row(n * 2, 6);
  const Row key_up = random_row(mla.nope_dim * mla.latent_rank, 7);
  const Row value_up = random_row(mla.value_dim * mla.latent_rank, 8);
  Row out(n * mla.value_dim);
  for (std::uint32_t p = 0; p < n; ++p) {
    const Ids tokens = choose(spec, row_of(iq, 8, p), row_of(w, 2, p), p, rows_of(keys, 4)).value();
    attend_expanded(mla, {key_up, value_up}, row_of(q, mla.query_dim(), p), p, tokens,
                    rows_of(z, mla.latent_rank), rows_of(kr, mla.rope_dim),
                    std::span(out).subspan(p * mla.value_dim, mla.value_dim));
  }
  return out;
}

TEST(SparseLatentAttention, WithKOfTheWholeTextIsDenseBitForBit) {
  const Row dense = sparse_attention(small(1000), 9);
  EXPECT_EQ(sparse_attention(small(9), 9), dense);
  EXPECT_NE(sparse_attention(small(8), 9), dense);
}

TEST(SparseLatentAttention, OfARowDependsOnItsPastOnly) {
  const Row whole = sparse_attention(small(3), 12);
  // The random rows of a shorter text are the first rows of the longer one's.
  for (std::uint32_t n = 1; n < 12; ++n) {
    const Row part = sparse_attention(small(3), n);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << n;
  }
}

TEST(Pools, AreTheMeanOfTheirKeysForEqualGates) {
  const DsaSpec spec = pooling(2, 2, true);
  Row block(spec.pools().frontier_size()), pool(1);
  Frontier frontier{0, block};
  const Row no_bias = {0, 0}, zero = {0};
  EXPECT_EQ(compress(spec.pools(), no_bias, 0, Row{3}, zero, frontier, pool),
            CompressStep::kPending);
  EXPECT_EQ(compress(spec.pools(), no_bias, 1, Row{4}, zero, frontier, pool),
            CompressStep::kClosed);
  EXPECT_EQ(pool[0], 3.5f);
}

TEST(Pools, FollowAStrongGate) {
  const DsaSpec spec = pooling(2, 2, true);
  Row block(spec.pools().frontier_size()), pool(1);
  Frontier frontier{0, block};
  const Row no_bias = {0, 0};
  EXPECT_EQ(compress(spec.pools(), no_bias, 0, Row{3}, Row{0}, frontier, pool),
            CompressStep::kPending);
  EXPECT_EQ(compress(spec.pools(), no_bias, 1, Row{4}, Row{50}, frontier, pool),
            CompressStep::kClosed);
  EXPECT_NEAR(pool[0], 4.f, 1e-3f);
}

TEST(SelectTokens, TakesPoolsWhole) {
  // Pools (0 1) (2 3) (4 5) with scores 1, 9, 5.
  const DsaSpec spec = pooling(2, 4, false);
  EXPECT_EQ(choose_by(spec, 5, {1, 9, 5}), (Ids{2, 3, 4, 5}));
  EXPECT_EQ(choose_by(pooling(2, 2, false), 5, {1, 9, 5}), (Ids{2, 3}));
}

TEST(SelectTokens, WithoutTailCountsNoTokenTwice) {
  const DsaSpec spec = pooling(2, 4, false);
  for (const Row& scores : {Row{9, 1, 5}, Row{0, 0, 0}, Row{1, 5, 9}}) {
    const Ids tokens = choose_by(spec, 5, scores).value();
    EXPECT_EQ(tokens.size(), 4u);
    EXPECT_EQ(std::adjacent_find(tokens.begin(), tokens.end()), tokens.end());
  }
}

TEST(SelectTokens, AddsTheTokensOfNoWholePoolAsTail) {
  const DsaSpec spec = pooling(2, 2, true);
  EXPECT_EQ(choose_by(spec, 4, {1, 9}), (Ids{2, 3, 4}));
  EXPECT_EQ(choose_by(spec, 3, {1, 9}), (Ids{2, 3}));
  EXPECT_EQ(choose_by(pooling(4, 4, true), 6, {1}), (Ids{0, 1, 2, 3, 4, 5, 6}));
}

TEST(SelectTokens, SeesAPoolOnlyOnceItIsWhole) {
  const DsaSpec spec = pooling(2, 2, true);
  EXPECT_EQ(choose_by(spec, 2, {1, 9}), (Ids{0, 1, 2}));  // pool 1 lacks token 3
}

TEST(SelectTokens, BeforeTheFirstPoolSeesItsTokens) {
  for (const bool tail : {false, true}) {
    const DsaSpec spec = pooling(4, 4, tail);
    EXPECT_EQ(choose_by(spec, 0, {}), (Ids{0}));
    EXPECT_EQ(choose_by(spec, 2, {}), (Ids{0, 1, 2}));
    EXPECT_EQ(choose_by(spec, 3, {1}), (Ids{0, 1, 2, 3}));
  }
}

TEST(SelectTokens, BoundsItsListByTopKAndTail) {
  const DsaSpec spec = pooling(3, 6, true);
  EXPECT_EQ(spec.list_limit(), 8u);
  const Row pools = {1, 2, 3, 4, 5};
  std::size_t longest = 0;
  for (std::uint32_t p = 0; p < 15; ++p) {
    longest = std::max(longest, choose_by(spec, p, pools).value().size());
  }
  EXPECT_EQ(longest, 8u);
}

using Modes = std::vector<SelectionMode>;
constexpr SelectionMode F = SelectionMode::kFull, S = SelectionMode::kShared;

TEST(SelectionSchedule, SelectsEveryFrequencyLayersAfterTheOffset) {
  EXPECT_EQ(selection_schedule(8, 1, 2), Modes(8, F));
  EXPECT_EQ(selection_schedule(10, 4, 2), (Modes{F, F, S, S, S, F, S, S, S, F}));
  EXPECT_EQ(selection_schedule(5, 2, 3), (Modes{F, F, F, S, F}));
}

TEST(SelectionSchedule, FollowsAPattern) {
  EXPECT_EQ(selection_schedule(4, "FSSF"), (Modes{F, S, S, F}));
}

TEST(SelectionSchedule, RefusesWhatHasNoList) {
  EXPECT_THROW(selection_schedule(4, 2, 0), Error);  // the first layer would share
  EXPECT_THROW(selection_schedule(4, 0, 2), Error);
  EXPECT_THROW(selection_schedule(4, "SFSF"), Error);
  EXPECT_THROW(selection_schedule(4, "FSF"), Error);
  EXPECT_THROW(selection_schedule(4, "FSFX"), Error);
}

TEST(SelectionSource, IsTheNearestLayerBeforeThatSelects) {
  const Modes schedule = {F, S, S, F, S};
  Ids sources;
  for (std::uint32_t i = 0; i < 5; ++i) sources.push_back(selection_source(schedule, i));
  EXPECT_EQ(sources, (Ids{0, 0, 0, 3, 3}));
}

TEST(DsaSpec, RemembersIndexKeysWhereItSelects) {
  DsaSpec spec = small();
  const std::size_t latent_slots = spec.attention.slots().size();
  ASSERT_EQ(spec.slots().size(), latent_slots + 1);
  EXPECT_EQ(spec.slots().back(), (Slot{.width = 4, .group = 4}));
  spec.mode = SelectionMode::kShared;
  EXPECT_EQ(spec.slots(), spec.attention.slots());
}

TEST(DsaSpec, RemembersPoolsAndTheirFrontierWithKPool) {
  DsaSpec spec = small(8);
  spec.kpool = 4;
  const Slots slots = spec.slots();
  ASSERT_EQ(slots.size(), 4u);
  EXPECT_EQ(slots[2], (Slot{.width = 4, .ratio = 4, .group = 4}));
  EXPECT_EQ(slots[3], (Slot{.kind = SlotKind::kFixed, .width = 2 * 4 * 4}));
}

TEST(DsaSpec, NamesTheWrongField) {
  const DsaSpec good = small(8);
  EXPECT_NO_THROW(good.validate());
  EXPECT_NO_THROW(changed(good, &DsaSpec::kpool, 4u).validate());
  EXPECT_NO_THROW(changed(good, &DsaSpec::key_norm_eps, 0.f).validate());
  expect_refused(changed(good, &DsaSpec::attention, MlaSpec{}), "heads");
  expect_refused(changed(good, &DsaSpec::indexer, IndexerSpec{}), "heads");
  MlaSpec direct = good.attention;
  direct.q_rank = 0;
  expect_refused(changed(good, &DsaSpec::attention, direct), "q_rank");
  expect_refused(changed(good, &DsaSpec::key_norm_eps, -1.f), "key_norm_eps");
  expect_refused(changed(good, &DsaSpec::kpool, 1u), "kpool");
  expect_refused(changed(good, &DsaSpec::kpool, 3u), "top_k");
  expect_refused(changed(good, &DsaSpec::always_select_tail, true), "always_select_tail");
  DsaSpec shared = changed(good, &DsaSpec::mode, SelectionMode::kShared);
  EXPECT_NO_THROW(changed(shared, &DsaSpec::indexer, IndexerSpec{}).validate());
}

}  // namespace
}  // namespace lemma::algorithm
