// SPDX-License-Identifier: Apache-2.0
// Operations over what a sequence remembers: attention by lists and over latents, choosing,
// compressing, recurrent mixers; by hand, and the same bits however a text is cut.
#include <gtest/gtest.h>

#include <limits>

#include "backend/reference/operations.hpp"
#include "backend/reference/program_run.hpp"

namespace lemma::reference {
namespace {

using Steps = std::vector<std::uint32_t>;

/// Ways to cut 21 positions: single rows, and cuts that meet no window's edge.
const std::vector<Steps>& cuts() {
  static const std::vector<Steps> all = {Steps(21, 1), {5, 1, 7, 8}, {3, 18}, {20, 1}};
  return all;
}
constexpr std::uint32_t kLength = 21;

algorithm::GqaSpec one_wide(std::uint32_t heads, std::uint32_t kv_heads) {
  algorithm::GqaSpec spec;
  spec.query_heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = spec.value_dim = 1;
  spec.scale = 1.f;
  return spec;
}

TEST(ReferenceAttend, SeesTheKeysOfItsKvHeadsListAlone) {
  ProgramRun run;
  backend::Attend op{.spec = one_wide(4, 2)};
  op.key = run.store(2, run.input(2, {7, 7, 7, 7, 7, 7}));
  op.value = run.store(2, run.input(2, {1, 10, 2, 20, 3, 30}));
  op.query = run.input(4, Rows(12, 1.f));
  op.selection = run.input(6, {1, 0, 0, 1, 0, 0,  //
                               1, 1, 0, 1, 0, 0,  //
                               1, 1, 0, 2, 0, 2});
  op.out = run.tensor(4);
  run.add(op);
  EXPECT_EQ(run.rows(op.out, {3}), (Rows{1, 1, 10, 10, 2, 2, 10, 10, 2, 2, 20, 20}));
}

TEST(ReferenceAttend, OverAListOfAllEqualsAttentionWithoutOne) {
  ProgramRun run;
  backend::Attend plain{.spec = one_wide(2, 1)};
  plain.key = run.store(1, run.input(1, noise(3, 1)));
  plain.value = run.store(1, run.input(1, noise(3, 2)));
  plain.query = run.input(2, noise(6, 3));
  plain.out = run.tensor(2);
  run.add(plain);
  backend::Attend listed = plain;
  listed.selection = run.input(4, {1, 0, 0, 0, 2, 0, 1, 0, 3, 0, 1, 2});
  listed.out = run.tensor(2);
  run.add(listed);
  EXPECT_EQ(run.rows(plain.out, {3}), run.rows(listed.out, {3}));
}

TEST(ReferenceAttend, LooksAheadToTheEndOfItsSegmentWhereItIsNotCausal) {
  ProgramRun run;
  backend::Attend op{.spec = one_wide(1, 1)};
  op.spec.causal = false;
  op.key = run.store(1, run.input(1, {5, 5, 5, 5}));
  op.value = run.store(1, run.input(1, {1, 2, 3, 6}));
  op.query = run.input(1, Rows(4, 0.f));
  op.out = run.tensor(1);
  run.add(op);
  EXPECT_EQ(run.rows(op.out, {4}), (Rows{3, 3, 3, 3}));
}

/// A program of latent attention, one with the key half as it is and one with it transposed.
struct Latents {
  ProgramRun run;
  backend::AttendLatent op;

  Latents() {
    op.spec.heads = 2;
    op.spec.latent_rank = 3;
    op.spec.nope_dim = 4;
    op.spec.rope_dim = 2;
    op.spec.value_dim = 5;
    op.spec.scale = 0.5f;
    op.latent = run.store(3, run.input(3, noise(3 * kLength, 1)));
    op.rope = run.store(2, run.input(2, noise(2 * kLength, 2)));
    op.query = run.input(2 * 6, noise(12 * kLength, 3));
    op.key_up = run.matrix(2 * 4, key_up);
    op.value_up = run.matrix(2 * 5, noise(2 * 5 * 3, 5));
    op.out = run.tensor(2 * 5);
  }
  const Rows key_up = noise(2 * 4 * 3, 4);
};

TEST(ReferenceAttendLatent, DoesNotAskHowAFileKeepsTheKeyHalf) {
  Latents latents;
  Rows transposed(latents.key_up.size());
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t d = 0; d < 4; ++d)
      for (std::size_t c = 0; c < 3; ++c)
        transposed[(h * 3 + c) * 4 + d] = latents.key_up[(h * 4 + d) * 3 + c];
  latents.run.add(latents.op);
  backend::AttendLatent turned = latents.op;
  turned.key_up_transposed = true;
  turned.key_up = latents.run.matrix(2 * 3, transposed);
  turned.out = latents.run.tensor(2 * 5);
  latents.run.add(turned);
  const Rows want = latents.run.rows(latents.op.out, {kLength});
  EXPECT_EQ(latents.run.rows(turned.out, {kLength}), want);
  for (const Steps& steps : cuts()) EXPECT_EQ(latents.run.rows(turned.out, steps), want);
}

TEST(ReferenceAttendLatent, OverOneTokenIsThatTokensValue) {
  ProgramRun run;
  backend::AttendLatent op;
  op.spec.heads = 1;
  op.spec.latent_rank = op.spec.value_dim = 2;
  op.spec.nope_dim = 1;
  op.spec.scale = 1.f;
  op.spec.use_rope = false;
  op.latent = run.store(2, run.input(2, {1, 2, 3, 4}));
  op.query = run.input(1, {1, 1});
  op.key_up = run.matrix(1, {1, 1});
  op.value_up = run.matrix(2, {1, 0, 10, 100});
  op.selection = run.input(3, {1, 0, 0, 1, 0, 0});
  op.out = run.tensor(2);
  run.add(op);
  EXPECT_EQ(run.rows(op.out, {1, 1}), (Rows{1, 210, 1, 210}));
}

TEST(ReferenceSelect, ChoosesTheBestTokensAndListsThemAscending) {
  ProgramRun run;
  algorithm::DsaSpec spec;
  spec.indexer = {.heads = 1, .dim = 1, .rope_dim = 0, .top_k = 2};
  backend::Select op{.rule = spec};
  op.keys = run.store(1, run.input(1, {5, 1, 3, 9}));
  op.query = run.input(1, Rows(4, 1.f));
  op.weights = run.input(1, Rows(4, 1.f));
  op.out = run.tensor(3);
  run.add(op);
  const Rows want = {1, 0, 0, 2, 0, 1, 2, 0, 2, 2, 0, 3};
  EXPECT_EQ(run.rows(op.out, {4}), want);
  EXPECT_EQ(run.rows(op.out, {1, 2, 1}), want);
}

TEST(ReferenceSelect, FailsTheRowWhoseScoresAreNotFinite) {
  ProgramRun run;
  algorithm::DsaSpec spec;
  spec.indexer = {.heads = 1, .dim = 1, .rope_dim = 0, .top_k = 1};
  backend::Select op{.rule = spec};
  op.keys = run.store(1, run.input(1, {5, 1}));
  op.query = run.input(1, {1, std::numeric_limits<float>::infinity()});
  op.weights = run.input(1, {1, 1});
  op.out = run.tensor(2);
  run.add(op);
  EXPECT_EQ(run.rows(op.out, {2}), (Rows{1, 0, 1, 0}));
  EXPECT_EQ(run.last().status, backend::SegmentStatus::kNonFinite);
  EXPECT_EQ(run.last().site, op.query.id);
}

TEST(ReferenceSelect, ListsTheKeysOfBlocksForEachKvHead) {
  ProgramRun run;
  algorithm::MsaSpec spec;
  spec.heads = one_wide(2, 2);
  spec.index_heads = 2;
  spec.index_dim = 1;
  spec.block_size = 2;
  spec.top_k = 2;
  backend::Select op{.rule = spec};
  op.keys = run.store(1, run.input(1, {9, 0, 1, 2, 3}));
  op.query = run.input(2, {1, -1, 1, -1, 1, -1, 1, -1, 1, -1});
  op.out = run.tensor(2 * 5);
  run.add(op);
  const Rows rows = run.rows(op.out, {5});
  // The last row sees three blocks; its own is forced, head 0 adds the first by its 9, head 1 the
  // first again by its key 0.
  EXPECT_EQ(Rows(rows.end() - 10, rows.end()), (Rows{3, 0, 1, 4, 0, 3, 0, 1, 4, 0}));
  EXPECT_EQ(Rows(rows.end() - 20, rows.end() - 10), (Rows{4, 0, 1, 2, 3, 4, 0, 1, 2, 3}));
}

TEST(ReferenceSelect, ChoosesWholePoolsThatCompressMade) {
  ProgramRun run;
  algorithm::DsaSpec spec;
  spec.indexer = {.heads = 1, .dim = 1, .rope_dim = 0, .top_k = 2};
  spec.kpool = 2;
  const algorithm::Slots slots = spec.pools().slots();
  backend::Compress compress{.spec = spec.pools(), .rows = run.slot(slots[0])};
  compress.frontier = run.slot(slots[1]);
  compress.bias = run.vector({0, 0});
  compress.value = run.input(1, {1, 1, 8, 8, 5, 5});
  compress.gate = run.input(1, Rows(6, 0.f));
  run.add(compress);
  backend::Select op{.rule = spec, .keys = compress.rows};
  op.query = run.input(1, Rows(6, 1.f));
  op.weights = run.input(1, Rows(6, 1.f));
  op.out = run.tensor(4);
  run.add(op);
  const Rows want = {1, 0, 0, 0, 2, 0, 1, 0, 2, 0, 1, 0, 2, 2, 3, 0, 2, 2, 3, 0, 2, 2, 3, 0};
  EXPECT_EQ(run.rows(op.out, {6}), want);
  EXPECT_EQ(run.rows(op.out, {1, 2, 1, 2}), want);
}

/// Compressed sparse attention with an indexer, from its projections to its heads.
struct Compressed {
  ProgramRun run;
  backend::AttendCompressed attend;

  backend::SlotId compress(const algorithm::CompressedSparseSpec& spec,
                           const algorithm::CompressorSpec& part, std::uint64_t seed) {
    const algorithm::Slots slots = part.slots();
    backend::Compress op{.spec = part, .entry = spec, .rows = run.slot(slots[0])};
    op.frontier = run.slot(slots[1]);
    op.bias = run.vector(noise(std::size_t{part.ratio} * part.channels(), seed));
    op.norm = run.vector(noise(part.width, seed + 1));
    op.value = run.input(part.channels(), noise(part.channels() * kLength, seed + 2));
    op.gate = run.input(part.channels(), noise(part.channels() * kLength, seed + 3));
    run.add(op);
    return op.rows;
  }

  Compressed() {
    algorithm::CompressedSparseSpec& spec = attend.spec;
    spec.heads = 2;
    spec.head_dim = 4;
    spec.q_rank = 4;
    spec.window = 3;
    spec.scale = 0.5f;
    spec.rope.rotary_dim = 2;
    spec.rope.placement = algorithm::RopePlacement::kSuffix;
    spec.ratio = 4;
    spec.overlap = true;
    spec.selection = algorithm::EntrySelection::kIndexer;
    spec.indexer = {.heads = 2, .dim = 4, .rope_dim = 2, .top_k = 2};
    spec.output_groups = spec.output_rank = 1;
    spec.validate();
    attend.rows = run.slot(spec.slots()[0]);
    run.add(backend::Store{attend.rows, run.input(4, noise(4 * kLength, 1))});
    attend.entries = compress(spec, spec.entries(), 10);
    backend::Select select{.rule = spec, .keys = compress(spec, spec.index_entries(), 20)};
    select.query = run.input(8, noise(8 * kLength, 2));
    select.weights = run.input(2, noise(2 * kLength, 3));
    select.out = run.tensor(1 + 2);
    run.add(select);
    attend.selection = select.out;
    attend.sinks = run.vector({0.5f, -0.5f});
    attend.query = run.input(8, noise(8 * kLength, 4));
    attend.out = run.tensor(8);
    run.add(attend);
  }
};

TEST(ReferenceCompress, GivesTheSameBitsHoweverATextIsCut) {
  Compressed c;
  const Rows want = c.run.rows(c.attend.out, {kLength});
  EXPECT_EQ(want.size(), 8u * kLength);
  for (const Steps& steps : cuts()) EXPECT_EQ(c.run.rows(c.attend.out, steps), want);
}

TEST(ReferenceCompress, ForgetsAStepThatWasAbandoned) {
  Compressed c;
  EXPECT_EQ(c.run.rows_after_failures(c.attend.out, {5, 1, 7, 8}),
            c.run.rows(c.attend.out, {kLength}));
}

TEST(ReferenceCompress, MakesEntriesThatOnlyLaterRowsSee) {
  Compressed c;
  // The first entry closes at position 3: before it a list is empty, and then holds entry 0 alone.
  const Rows lists = c.run.rows(c.attend.selection, {8});
  EXPECT_EQ(Rows(lists.begin(), lists.begin() + 9), Rows(9, 0.f));
  EXPECT_EQ(Rows(lists.begin() + 9, lists.begin() + 12), (Rows{1, 0, 0}));
  EXPECT_EQ(Rows(lists.begin() + 21, lists.begin() + 24), (Rows{2, 0, 1}));
}

TEST(ReferenceAttendCompressed, SeesAllEntriesOrThoseOfItsList) {
  Compressed c;
  backend::AttendCompressed all = c.attend;
  all.selection = {};
  all.out = c.run.tensor(8);
  c.run.add(all);
  const Rows listed = c.run.rows(c.attend.out, {kLength}), whole = c.run.rows(all.out, {kLength});
  // Two entries are chosen, so the list leaves one out from position 11 on.
  const auto third = static_cast<std::ptrdiff_t>(11 * 8);
  EXPECT_EQ(Rows(listed.begin(), listed.begin() + third),
            Rows(whole.begin(), whole.begin() + third));
  for (std::size_t i = 11 * 8; i < listed.size(); ++i) EXPECT_NE(listed[i], whole[i]) << i;
}

/// Gated DeltaNet, its channels in one tensor or in three.
Tensor delta_net(ProgramRun& run, bool apart) {
  algorithm::GatedDeltaNetSpec spec;
  spec.key_heads = 1;
  spec.value_heads = 2;
  spec.key_dim = 4;
  spec.value_dim = 3;
  spec.kernel = 4;
  spec.validate();
  backend::Recur op{.spec = spec};
  const Rows rows = noise(spec.channels() * kLength, 1), kernel = noise(spec.channels() * 4, 2);
  std::uint32_t first = 0;
  for (const std::uint32_t width : apart ? Steps{4, 4, 6} : Steps{14}) {
    Rows part;
    for (std::size_t r = 0; r < kLength; ++r) {
      const auto from = rows.begin() + static_cast<std::ptrdiff_t>(r * spec.channels() + first);
      part.insert(part.end(), from, from + width);
    }
    op.channels.push_back(run.input(width, part));
    const auto from = kernel.begin() + std::ptrdiff_t{first} * 4;
    op.convolutions.push_back(run.vector(Rows(from, from + std::ptrdiff_t{width} * 4)));
    first += width;
  }
  op.decay = run.input(2, noise(2 * kLength, 3));
  op.beta = run.input(2, noise(2 * kLength, 4));
  op.gate = run.input(6, noise(6 * kLength, 5));
  op.rate = run.vector({0.5f, 2.f});
  op.dt_bias = run.vector({0.1f, -0.1f});
  op.norm = run.vector({1, 2, 3});
  op.matrix = run.slot(spec.slots()[0]);
  op.history = run.slot(spec.slots()[1]);
  op.out = run.tensor(6);
  run.add(op);
  return op.out;
}

TEST(ReferenceRecur, GivesTheSameBitsHoweverATextIsCut) {
  ProgramRun run;
  const Tensor out = delta_net(run, false);
  const Rows want = run.rows(out, {kLength});
  for (const Steps& steps : cuts()) EXPECT_EQ(run.rows(out, steps), want);
}

TEST(ReferenceRecur, ForgetsAStepThatWasAbandoned) {
  ProgramRun run;
  const Tensor out = delta_net(run, false);
  EXPECT_EQ(run.rows_after_failures(out, {5, 1, 7, 8}), run.rows(out, {kLength}));
}

TEST(ReferenceRecur, TakesChannelsInOneTensorOrThree) {
  ProgramRun one, three;
  const Tensor together = delta_net(one, false), apart = delta_net(three, true);
  EXPECT_EQ(three.rows(apart, {kLength}), one.rows(together, {kLength}));
}

TEST(ReferenceRecur, RunsKdaInAnyCut) {
  ProgramRun run;
  algorithm::KdaSpec spec;
  spec.heads = 2;
  spec.dim = 3;
  spec.kernel = 3;
  spec.lower_bound = -5.f;
  spec.validate();
  backend::Recur op{.spec = spec};
  op.channels = {run.input(18, noise(18 * kLength, 1))};
  op.convolutions = {run.vector(noise(18 * 3, 2))};
  op.decay = run.input(6, noise(6 * kLength, 3));
  op.beta = run.input(2, noise(2 * kLength, 4));
  op.gate = run.input(6, noise(6 * kLength, 5));
  op.rate = run.vector({0.5f, 2.f});
  op.dt_bias = run.vector(noise(6, 6));
  op.norm = run.vector({1, 2, 3});
  op.matrix = run.slot(spec.slots()[0]);
  op.history = run.slot(spec.slots()[1]);
  op.out = run.tensor(6);
  run.add(op);
  const Rows want = run.rows(op.out, {kLength});
  for (const Steps& steps : cuts()) EXPECT_EQ(run.rows(op.out, steps), want);
}

}  // namespace
}  // namespace lemma::reference
