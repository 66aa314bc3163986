// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/msa.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithm/attention/lists.hpp"
#include "algorithm/attention/test_rows.hpp"

namespace lemma::algorithm {
namespace {

using namespace test;

MsaSpec blocks_of(std::uint32_t size, std::uint32_t top_k, std::uint32_t local = 1,
                  std::uint32_t init = 0) {
  MsaSpec spec;
  spec.heads = {.query_heads = 4, .kv_heads = 2, .head_dim = 4, .value_dim = 4, .scale = 0.5f};
  spec.index_heads = 2;
  spec.index_dim = 1;
  spec.block_size = size;
  spec.top_k = top_k;
  spec.local_blocks = local;
  spec.init_blocks = init;
  return spec;
}

std::optional<Ids> choose(const MsaSpec& spec, const Row& query, std::uint32_t position,
                          const Row& keys) {
  Row scores(spec.visible_blocks(position));
  Ids blocks(spec.top_k);
  const auto count =
      select_blocks(spec, query, position, rows_of(keys, spec.index_dim), scores, blocks);
  if (!count) return std::nullopt;
  blocks.resize(*count);
  return blocks;
}

Ids keys_of(const MsaSpec& spec, const Ids& blocks, std::uint32_t position) {
  Ids keys(spec.list_limit());
  keys.resize(expand_blocks(spec, blocks, position, keys));
  return keys;
}

TEST(SelectBlocks, TakesTheOwnBlockAndTheBestOfTheOthers) {
  const MsaSpec spec = blocks_of(2, 2);
  const Ids blocks = choose(spec, {1}, 5, {9, 0, 1, 8, 0, 0}).value();
  EXPECT_EQ(blocks, (Ids{0, 2}));  // 9 beats 8
  EXPECT_EQ(keys_of(spec, blocks, 5), (Ids{0, 1, 4, 5}));
}

TEST(SelectBlocks, ScoresWithoutScaleAndWithoutCuttingOff) {
  const MsaSpec spec = blocks_of(1, 2);
  EXPECT_EQ(choose(spec, {-1}, 3, {5, 1, 3, 0}), (Ids{1, 3}));  // -1 is the best of -5, -1, -3
}

TEST(SelectBlocks, OfOneLocalBlockIsAttentionInsideIt) {
  const MsaSpec spec = blocks_of(2, 1);
  const Row scores = {9, 9, 9, 9, 0, 0};
  EXPECT_EQ(keys_of(spec, choose(spec, {1}, 4, scores).value(), 4), (Ids{4}));
  EXPECT_EQ(keys_of(spec, choose(spec, {1}, 5, scores).value(), 5), (Ids{4, 5}));
}

TEST(SelectBlocks, CountsForcedBlocksAmongItsK) {
  const Row scores = {1, 2, 9, 8, 7, 0};
  EXPECT_EQ(choose(blocks_of(1, 3, 2), {1}, 5, scores), (Ids{2, 4, 5}));
  EXPECT_EQ(choose(blocks_of(1, 3, 1, 1), {1}, 5, scores), (Ids{0, 2, 5}));
  EXPECT_EQ(choose(blocks_of(1, 3, 1, 2), {1}, 5, scores), (Ids{0, 1, 5}));
  EXPECT_EQ(choose(blocks_of(1, 2, 0), {1}, 5, scores), (Ids{2, 3}));
}

TEST(SelectBlocks, TakesTheLowestOfEqualBlocks) {
  EXPECT_EQ(choose(blocks_of(1, 3), {1}, 5, {0, -0.f, 0, -0.f, 0, 0}), (Ids{0, 1, 5}));
}

TEST(SelectBlocks, SeesNoFutureKey) {
  EXPECT_EQ(choose(blocks_of(2, 2), {1}, 4, {1, 1, 2, 2, 0, 1e30f}), (Ids{1, 2}));
  EXPECT_EQ(choose(blocks_of(2, 2), {1}, 4, {1, 1, 2, 2, 0, std::nanf("")}), (Ids{1, 2}));
  EXPECT_EQ(choose(blocks_of(2, 2, 0), {1}, 4, {1, 1, 2, 2, 0, 9}), (Ids{0, 1}));
  // Key 5 lies in the own block of the query at 4, which is chosen anyway, and stays invisible.
  EXPECT_EQ(keys_of(blocks_of(2, 2), {1, 2}, 4), (Ids{2, 3, 4}));
}

TEST(SelectBlocks, TakesEveryBlockUpToK) {
  const MsaSpec spec = blocks_of(4, 3);
  const Row keys = random_row(20, 1);
  for (std::uint32_t p = 0; p < 12; ++p) {  // up to top_k * block_size keys
    Ids all(p + 1);
    for (std::uint32_t j = 0; j <= p; ++j) all[j] = j;
    EXPECT_EQ(keys_of(spec, choose(spec, {1}, p, keys).value(), p), all);
  }
  EXPECT_LT(keys_of(spec, choose(spec, {1}, 12, keys).value(), 12).size(), 13u);
}

TEST(SelectBlocks, DiffersByGroup) {
  const MsaSpec spec = blocks_of(1, 2);
  const Row keys = {3, -3, 0, 0};
  EXPECT_EQ(choose(spec, {1}, 3, keys), (Ids{0, 3}));
  EXPECT_EQ(choose(spec, {-1}, 3, keys), (Ids{1, 3}));
}

TEST(SelectBlocks, DoesNotSeeTheOrderInsideABlock) {
  const MsaSpec spec = blocks_of(4, 2);
  EXPECT_EQ(choose(spec, {1}, 13, {1, 2, 3, 4, 0, 9, 0, 0, 5, 5, 5, 5, 0, 0}),
            choose(spec, {1}, 13, {4, 3, 2, 1, 0, 0, 9, 0, 5, 5, 5, 5, 0, 0}));
}

TEST(SelectBlocks, RefusesScoresThatAreNotFinite) {
  const float nan = std::nanf("");
  for (const float bad : {nan, kInfinity, -kInfinity}) {
    EXPECT_FALSE(choose(blocks_of(2, 2), {1}, 5, {1, bad, 2, 3, 4, 5}).has_value()) << bad;
    EXPECT_FALSE(choose(blocks_of(2, 2), {1}, 5, {1, 1, 2, 3, bad, 5}).has_value()) << bad;
  }
}

TEST(SeesKey, AgreesWithTheList) {
  const MsaSpec spec = blocks_of(3, 2);
  const Ids blocks = {1, 3};
  const Ids keys = keys_of(spec, blocks, 10);
  EXPECT_EQ(keys, (Ids{3, 4, 5, 9, 10}));
  for (std::uint32_t j = 0; j < 14; ++j) {
    EXPECT_EQ(sees_key(spec, blocks, 10, j), std::binary_search(keys.begin(), keys.end(), j)) << j;
  }
}

/// All rows of a random text, each head over its group's list.
Row sparse_attention(const MsaSpec& spec, std::uint32_t n) {
  const std::size_t d = spec.heads.head_dim, H = spec.heads.query_heads, K = spec.heads.kv_heads;
  const Row q = random_row(n * H * d, 1), k = random_row(n * K * d, 2),
            v = random_row(n * K * d, 3);
  const Row index_q = random_row(n * K, 4), index_k = random_row(n, 5);
  Row out(n * H * d);
  for (std::uint32_t p = 0; p < n; ++p) {
    for (std::uint32_t h = 0; h < H; ++h) {
      const std::uint32_t group = spec.heads.kv_head(h);
      const Ids keys = keys_of(spec, choose(spec, {index_q[p * K + group]}, p, index_k).value(), p);
      const RowReader key = [&](std::uint32_t j) { return row_of(k, d, j * K + group); };
      const RowReader value = [&](std::uint32_t j) { return row_of(v, d, j * K + group); };
      const RowSource source{keys, key, value};
      attend_lists(spec.heads, row_of(q, d, p * H + h), p, {&source, 1}, nullptr,
                   std::span(out).subspan((p * H + h) * d, d));
    }
  }
  return out;
}

Row dense_attention(const MsaSpec& spec, std::uint32_t n) {
  const std::size_t d = spec.heads.head_dim, H = spec.heads.query_heads, K = spec.heads.kv_heads;
  const Row q = random_row(n * H * d, 1), k = random_row(n * K * d, 2),
            v = random_row(n * K * d, 3);
  Row out(n * H * d);
  for (std::uint32_t p = 0; p < n; ++p) {
    for (std::uint32_t h = 0; h < H; ++h) {
      const std::uint32_t group = spec.heads.kv_head(h);
      attend(
          spec.heads, row_of(q, d, p * H + h), p, visible_range(p, 0),
          [&](std::uint32_t j) { return row_of(k, d, j * K + group); },
          [&](std::uint32_t j) { return row_of(v, d, j * K + group); }, nullptr, 0.f,
          std::span(out).subspan((p * H + h) * d, d));
    }
  }
  return out;
}

TEST(BlockSparseAttention, OfAShortTextIsFullAttentionBitForBit) {
  EXPECT_EQ(sparse_attention(blocks_of(4, 3), 12), dense_attention(blocks_of(4, 3), 12));
  EXPECT_NE(sparse_attention(blocks_of(4, 3), 13), dense_attention(blocks_of(4, 3), 13));
}

TEST(MsaSpec, RemembersKeysValuesAndIndexKeys) {
  MsaSpec spec = blocks_of(128, 16);
  spec.index_dim = 128;
  const Slots slots = spec.slots();
  ASSERT_EQ(slots.size(), 3u);
  EXPECT_EQ(slots[0], spec.heads.slots()[0]);
  EXPECT_EQ(slots[2], (Slot{.width = 128}));
}

TEST(MsaSpec, NamesTheWrongField) {
  const MsaSpec good = blocks_of(128, 16);
  EXPECT_NO_THROW(good.validate());
  expect_refused(changed(good, &MsaSpec::heads, GqaSpec{}), "query_heads");
  expect_refused(changed(good, &MsaSpec::heads, changed(good.heads, &GqaSpec::window, 8u)),
                 "window");
  expect_refused(changed(good, &MsaSpec::index_heads, 4u), "index_heads");
  expect_refused(changed(good, &MsaSpec::index_dim, 0u), "index_dim");
  expect_refused(changed(good, &MsaSpec::block_size, 0u), "block_size");
  expect_refused(changed(good, &MsaSpec::top_k, 0u), "top_k");
  expect_refused(changed(good, &MsaSpec::top_k, 0x4000000u), "top_k");
  expect_refused(changed(good, &MsaSpec::init_blocks, 16u), "init_blocks");
  expect_refused(changed(good, &MsaSpec::local_blocks, 17u), "init_blocks");
}

}  // namespace
}  // namespace lemma::algorithm
