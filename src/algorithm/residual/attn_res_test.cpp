// SPDX-License-Identifier: Apache-2.0
#include "algorithm/residual/attn_res.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "algorithm/attention/test_rows.hpp"

namespace lemma::algorithm {
namespace {

using test::changed;
using test::expect_refused;
using test::random_row;
using test::Row;
using Spec = AttnResSpec;

Spec wide(std::uint32_t width, std::uint32_t block_size = 2) {
  Spec spec;
  spec.block_size = block_size;
  spec.width = width;
  return spec;
}

Row mixed(const Row& current, const Row& blocks, const Row& norm, const Row& proj) {
  const Spec spec = wide(std::uint32_t(current.size()));
  Row out(current.size()), scratch(current.size() + blocks.size() / current.size() + 1);
  attn_res_mix(spec, current, blocks, norm, proj, scratch, out);
  return out;
}

TEST(AttnRes, WithoutAProjectionIsTheMean) {
  EXPECT_EQ(mixed({3, 5}, {1, 3}, {1, 1}, {0, 0}), (Row{2, 4}));
}

TEST(AttnRes, OfOneCandidateIsThatCandidate) {
  const Row current = random_row(6, 1);
  EXPECT_EQ(mixed(current, {}, random_row(6, 2), random_row(6, 3)), current);
}

TEST(AttnRes, PicksACandidateThatTowersAboveTheOthers) {
  const Row blocks = {1, 0, 0, 1};
  EXPECT_EQ(mixed({0, -1}, blocks, {1, 1}, {500, 0}), (Row{1, 0}));
  EXPECT_EQ(mixed({0, -1}, blocks, {1, 1}, {0, -500}), (Row{0, -1}));
  EXPECT_EQ(mixed({0, -1}, blocks, {500, 0}, {1, 1}), (Row{1, 0})) << "by the norm's weight too";
}

TEST(AttnRes, ScoresACandidateByItsDirectionAndAddsItWithItsLength) {
  // Equal directions score alike, so the weights are one half each whatever the length.
  const Row out = mixed({10, 20}, {1, 2}, {1, 1}, {0.7f, -0.2f});
  test::expect_near(out, {5.5f, 11.f}, tolerance::kNorm);
}

TEST(AttnRes, DoesNotOverflowForLargeScores) {
  const Row out = mixed({1, 1}, {2, 2}, {1e4f, 1e4f}, {1e4f, 1e4f});
  EXPECT_TRUE(std::isfinite(out[0]));
}

TEST(AttnRes, MayWriteOverTheStateThatRunsOn) {
  const Spec spec = wide(3);
  Row current = random_row(3, 4), scratch(3 + 2 + 1);
  const Row blocks = random_row(6, 5), norm = random_row(3, 6), proj = random_row(3, 7);
  const Row want = mixed(current, blocks, norm, proj);
  attn_res_mix(spec, current, blocks, norm, proj, scratch, current);
  EXPECT_EQ(current, want);
}

/// Layers of a model whose attention gives 1 and whose feed-forward block 10, with mixers that
/// take the mean.
struct Walk {
  Row hidden = {100.f}, blocks;
  std::vector<std::size_t> sizes;
  Row inputs;  ///< of each attention

  void layer(const Spec& spec, std::uint32_t l) {
    inputs.push_back(blocks.empty() ? hidden[0] : mixed(hidden, blocks, {1}, {0})[0]);
    if (spec.opens_block(l)) {
      blocks.push_back(hidden[0]);
      hidden[0] = 1.f;
    } else {
      hidden[0] += 1.f;
    }
    sizes.push_back(blocks.size());
    hidden[0] += 10.f;
  }
};

TEST(AttnRes, LaysTheStateAsideWhereABlockOpensAndStartsAnew) {
  const Spec spec = wide(1, 2);
  Walk walk;
  for (std::uint32_t l = 0; l < 3; ++l) walk.layer(spec, l);
  EXPECT_EQ(walk.sizes, (std::vector<std::size_t>{1, 1, 2}));
  EXPECT_EQ(walk.blocks, (Row{100.f, 22.f}));
  EXPECT_EQ(walk.hidden[0], 11.f) << "layer 2 dropped what came before it";
  EXPECT_EQ(walk.inputs, (Row{100.f, (100.f + 11.f) / 2, (100.f + 22.f) / 2}));
  EXPECT_EQ(spec.blocks(3), 2u);
}

TEST(AttnRes, CountsTheStatesThatAreLaidAside) {
  EXPECT_EQ(wide(1, 12).blocks(93), 8u);
  EXPECT_EQ(wide(1, 12).blocks(96), 8u);
  EXPECT_EQ(wide(1, 12).blocks(97), 9u);
  EXPECT_EQ(wide(1, 1).blocks(5), 5u);
}

TEST(AttnRes, RefusesWhatMakesNoSense) {
  EXPECT_NO_THROW(wide(4).validate());
  expect_refused(wide(0), "width");
  expect_refused(wide(4, 0), "block size");
  expect_refused(changed(wide(4), &Spec::eps, -1.f), "eps");
  expect_refused(changed(wide(4), &Spec::eps, std::nanf("")), "eps");
}

}  // namespace
}  // namespace lemma::algorithm
