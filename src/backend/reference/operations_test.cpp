// SPDX-License-Identifier: Apache-2.0
// Operations on single rows, the feed-forward and the residual styles, by hand.
#include "backend/reference/operations.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "backend/reference/program_run.hpp"

namespace lemma::reference {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(ReferenceEmbed, TakesColumnsAndAddsTheTokenType) {
  ProgramRun run;
  backend::Embed op{.table = run.table(2, {1, 2, 3, 4, 5, 6})};
  op.token_type = run.vector({100, 200});
  op.begin = 1;
  op.scale = 2.f;
  op.out = run.tensor(2);
  run.add(op);
  EXPECT_EQ(run.rows(op.out, {2}), (Rows{104, 206, 110, 212}));
}

TEST(ReferenceGate, CountsForTheWholeRowWhereItIsOneNumber) {
  ProgramRun run;
  const Tensor x = run.input(4, {2, 4, 6, 8, 2, 4, 6, 8}), gate = run.input(1, {0, 100});
  const Tensor out = run.tensor(4);
  run.add(backend::Gate{x, gate, out});
  EXPECT_EQ(run.rows(out, {2}), (Rows{1, 2, 3, 4, 2, 4, 6, 8}));
}

TEST(ReferenceGate, CountsForItsRunOfTheRowWhereThereIsOneAHead) {
  ProgramRun run;
  const Tensor x = run.input(4, {2, 4, 6, 8}), gate = run.input(2, {0, 100});
  const Tensor out = run.tensor(4);
  run.add(backend::Gate{x, gate, out});
  EXPECT_EQ(run.rows(out, {1}), (Rows{1, 2, 6, 8}));
}

TEST(ReferenceActivate, ReadsUpFromItsBeginning) {
  ProgramRun run;
  const Tensor gate = run.input(2, {-1, 3}), up = run.input(5, {9, 9, 5, 7, 9});
  backend::Activate op{.spec = {.kind = algorithm::Activation::kRelu}, .up_begin = 2};
  op.gate = gate;
  op.up = up;
  op.out = run.tensor(2);
  run.add(op);
  EXPECT_EQ(run.rows(op.out, {1}), (Rows{0, 21}));
}

TEST(ReferenceProjectGroups, MultipliesEachGroupByItsOwnRows) {
  ProgramRun run;
  backend::ProjectGroups op{.spec = {.groups = 2, .in = 2, .out = 1}};
  op.in = run.input(4, {1, 2, 3, 4, 5, 6, 7, 8});
  op.weight = run.matrix(2, {1, 10, 100, 1000});
  op.out = run.tensor(2);
  run.add(op);
  EXPECT_EQ(run.rows(op.out, {2}), (Rows{21, 4300, 65, 8700}));
}

TEST(ReferenceProjectGroups, MultipliesAllGroupsByTheSameRowsWhereTheyAreShared) {
  ProgramRun run;
  backend::ProjectGroups op{.spec = {.groups = 2, .in = 2, .out = 2, .shared = true}};
  op.in = run.input(4, {1, 2, 3, 4, 5, 6, 7, 8});
  op.weight = run.matrix(2, {1, 10, 100, 1000});
  op.out = run.tensor(4);
  run.add(op);
  EXPECT_EQ(run.rows(op.out, {2}), (Rows{21, 2100, 43, 4300, 65, 6500, 87, 8700}));
}

/// Experts of one channel that multiply a positive number by their factor.
backend::Experts scaling_experts(ProgramRun& run, const Rows& factors, std::uint32_t chosen,
                                 std::size_t rows = 1) {
  backend::Experts op;
  op.spec.activation.kind = algorithm::Activation::kRelu;
  op.spec.gated = false;
  op.spec.width = op.spec.hidden = 1;
  op.experts = static_cast<std::uint32_t>(factors.size());
  op.up = run.matrix(factors.size(), Rows(factors.size(), 1.f));
  op.down = run.matrix(factors.size(), factors);
  op.out = run.tensor(1);
  op.weights = run.input(chosen, Rows(rows * chosen, 1.f));
  return op;
}

TEST(ReferenceExperts, AreSummedInAscendingIdWhateverTheirRank) {
  ProgramRun run;
  backend::Experts op = scaling_experts(run, {1e8f, 1.f, -1e8f}, 3);
  op.in = run.input(1, {1});
  op.ids = run.input(3, {2, 0, 1});
  run.add(op);
  // (1e8 + 1) - 1e8 is 0 in f32; in rank order the sum would be 1.
  EXPECT_EQ(run.rows(op.out, {1}), Rows{0});
}

TEST(ReferenceExperts, HaveBiasesOfTheirOwn) {
  ProgramRun run;
  backend::Experts op = scaling_experts(run, {2, 3, 5}, 2);
  op.up_bias = run.matrix(3, {10, 20, 30}, backend::WeightUse::kVector);
  op.down_bias = run.matrix(3, {100, 200, 300}, backend::WeightUse::kVector);
  op.in = run.input(1, {1});
  op.ids = run.input(2, {2, 0});
  run.add(op);
  EXPECT_EQ(run.rows(op.out, {1}), Rows{(1 + 10) * 2 + 100 + (1 + 30) * 5 + 300});
}

TEST(ReferenceExperts, AreGivenWeighedInputsWhereTheSpecSaysSo) {
  ProgramRun run;
  backend::Experts op = scaling_experts(run, {2, 3}, 1);
  op.spec.activation.kind = algorithm::Activation::kReluSquared;
  op.weigh_inputs = true;
  op.in = run.input(1, {1});
  op.ids = run.input(1, {1});
  op.weights = run.input(1, {4});
  run.add(op);
  EXPECT_EQ(run.rows(op.out, {1}), Rows{4 * 4 * 3});
}

TEST(ReferenceExperts, FailTheRowWhoseIdsNameNone) {
  ProgramRun run;
  backend::Experts op = scaling_experts(run, {2, 3}, 2, 3);
  op.in = run.input(1, {1, 1, 1});
  op.ids = run.input(2, {0, 1, 0, 2, 1, 1});
  run.add(op);
  const auto results = run.results(3);
  EXPECT_EQ(results[0].status, backend::SegmentStatus::kOk);
  EXPECT_EQ(results[1].status, backend::SegmentStatus::kNonFinite);
  EXPECT_EQ(results[2].status, backend::SegmentStatus::kNonFinite);
  EXPECT_EQ(results[1].site, op.ids.id);
}

backend::Route route_of(ProgramRun& run, Tensor logits, std::uint32_t chosen) {
  backend::Route op;
  op.spec.experts = logits.width;
  op.spec.chosen = chosen;
  op.logits = logits;
  op.ids = run.tensor(chosen);
  op.weights = run.tensor(chosen);
  return op;
}

TEST(ReferenceRoute, RanksExpertsBestFirst) {
  ProgramRun run;
  const backend::Route op = route_of(run, run.input(4, {0, 2, 1, 3, 9, 2, 9, 3}), 2);
  run.add(op);
  EXPECT_EQ(run.rows(op.ids, {2}), (Rows{3, 1, 0, 2}));
}

TEST(ReferenceRoute, LooksUpATableByTokenId) {
  ProgramRun run;
  backend::Route op = route_of(run, run.input(3, {5, 0, 0, 5, 0, 0}), 2);
  op.spec.hashed = true;
  op.spec.score = algorithm::RouteScore::kSoftmaxOverChosen;
  op.hash_table = run.table(2, {2, 1, 1, 0});
  run.add(op);
  EXPECT_EQ(run.rows(op.ids, {2}), (Rows{2, 1, 1, 0}));
  EXPECT_EQ(run.rows(op.weights, {1}), (Rows{0.5f, 0.5f}));
}

TEST(ReferenceRoute, FailsTheSegmentOfARefusedRowAlone) {
  ProgramRun run;
  const backend::Route op = route_of(run, run.input(2, {1, 2, kInf, 2, 2, 1}), 1);
  run.add(op);
  const auto results = run.results(3);
  EXPECT_EQ(results[0].status, backend::SegmentStatus::kOk);
  EXPECT_EQ(results[1].status, backend::SegmentStatus::kNonFinite);
  EXPECT_EQ(results[1].site, op.logits.id);
  EXPECT_EQ(results[2].status, backend::SegmentStatus::kOk);
}

algorithm::HyperConnectionSpec three_streams() {
  algorithm::HyperConnectionSpec spec;
  spec.streams = 3;
  spec.width = 2;
  spec.iterations = 20;
  return spec;
}

TEST(ReferenceStreams, BeginAsTheEmbeddingAndEndAsTheirMean) {
  ProgramRun run;
  const Tensor x = run.input(2, {3, 6}), streams = run.tensor(6), out = run.tensor(2);
  run.add(backend::StreamsEnter{three_streams(), x, streams});
  run.add(backend::StreamsLeave{.spec = three_streams(), .in = streams, .out = out});
  EXPECT_EQ(run.rows(streams, {1}), (Rows{3, 6, 3, 6, 3, 6}));
  EXPECT_EQ(run.rows(out, {1}), (Rows{3, 6}));
}

// Logits of 50 in one column of each row make the mixing matrix a permutation, j to j + 1.
TEST(ReferenceStreams, AreMovedFromRowToColumnOfTheMatrix) {
  ProgramRun run;
  const Tensor in = run.input(6, {9, 9, 9, 9, 9, 9, 1, 2, 3, 4, 5, 6});
  const Tensor branch = run.input(2, {0, 0, 10, 20});
  backend::StreamsRead read{.spec = three_streams(), .in = in};
  read.fn = run.matrix(15, Rows(15 * 6, 0.f));
  //                        pre           post          M
  read.base = run.vector({50, -50, -50, 0, -50, -50, 0, 50, 0, 0, 0, 50, 50, 0, 0});
  read.scale = run.vector({1, 1, 1});
  read.out = run.tensor(2);
  read.coefficients = run.tensor(15);
  run.add(read);
  backend::StreamsWrite write{.spec = three_streams(), .in = in, .branch = branch};
  write.coefficients = read.coefficients;
  write.out = run.tensor(6);
  run.add(write);
  const Rows reduced = run.rows(read.out, {2}), written = run.rows(write.out, {2});
  // pre is (1, 0, 0) and post (1, 0, 0), each within a few eps of 1e-6 times the streams.
  const Rows want_reduced = {1, 2}, want_written = {5 + 10, 6 + 20, 1, 2, 3, 4};
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(reduced[2 + i], want_reduced[i], 2e-5f);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(written[6 + i], want_written[i], 5e-5f);
}

// The product with fn makes coefficients the row's own: 50 in its first channel opens the first
// stream and closes the second, -50 the other way round.
TEST(ReferenceStreams, AreReadByCoefficientsOfEachRow) {
  ProgramRun run;
  backend::StreamsRead op{.spec = three_streams()};
  op.in = run.input(6, {50, 1, -9, 2, 9, 3, -50, 1, -9, 2, 9, 3});
  Rows fn(15 * 6, 0.f);
  fn[0] = 100;
  fn[6] = -100;
  op.fn = run.matrix(15, fn);
  op.base = run.vector({0, 0, -100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  op.scale = run.vector({1, 1, 1});
  op.out = run.tensor(2);
  op.coefficients = run.tensor(15);
  run.add(op);
  const Rows out = run.rows(op.out, {2}), want = {50, 1, -9, 2};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(out[i], want[i], 1e-4f);
}

TEST(ReferenceStreams, LeaveByLearnedWeights) {
  ProgramRun run;
  backend::StreamsLeave op{.spec = three_streams(), .in = run.input(6, {1, 2, 3, 4, 5, 6})};
  op.fn = run.matrix(3, Rows(3 * 6, 0.f));
  op.base = run.vector({-100, 100, 0});
  op.scale = run.vector({1});
  op.out = run.tensor(2);
  run.add(op);
  const Rows out = run.rows(op.out, {1});
  EXPECT_NEAR(out[0], 3 + 5 / 2.f, 2e-5f);
  EXPECT_NEAR(out[1], 4 + 6 / 2.f, 2e-5f);
}

TEST(ReferenceMixResidual, IsTheMeanWhereNothingIsPreferred) {
  ProgramRun run;
  backend::MixResidual op{.spec = {.block_size = 2, .width = 2}};
  op.blocks = {run.input(2, {1, 10}), run.input(2, {2, 20})};
  op.current = run.input(2, {6, 60});
  op.norm = run.vector({1, 1});
  op.projection = run.vector({0, 0});
  op.out = run.tensor(2);
  run.add(op);
  const Rows out = run.rows(op.out, {1});
  EXPECT_NEAR(out[0], 3.f, 1e-6f);
  EXPECT_NEAR(out[1], 30.f, 1e-5f);
}

TEST(ReferenceMixResidual, PrefersTheBlockThatTheProjectionPointsAt) {
  ProgramRun run;
  backend::MixResidual op{.spec = {.block_size = 2, .width = 2}};
  op.blocks = {run.input(2, {1, -1}), run.input(2, {-1, 1})};
  op.current = run.input(2, {-3, 3});
  op.norm = run.vector({1, 1});
  op.projection = run.vector({100, 0});
  op.out = run.tensor(2);
  run.add(op);
  EXPECT_EQ(run.rows(op.out, {1}), (Rows{1, -1}));
}

}  // namespace
}  // namespace lemma::reference
