// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/compressed_sparse.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithm/attention/test_rows.hpp"
#include "algorithm/norm.hpp"

namespace lemma::algorithm {
namespace {

using namespace test;

CompressedSparseSpec windowed(std::uint32_t window = 3) {
  CompressedSparseSpec spec{.heads = 2, .head_dim = 6, .q_rank = 4, .window = window};
  spec.scale = 0.4f;
  spec.rope = {.rotary_dim = 4, .layout = RopeLayout::kInterleaved};
  spec.rope.placement = RopePlacement::kSuffix;
  spec.output_groups = 2;
  spec.output_rank = 3;
  return spec;
}

CompressedSparseSpec coarse(std::uint32_t ratio = 3) {
  CompressedSparseSpec spec = windowed();
  spec.ratio = ratio;
  return spec;
}

CompressedSparseSpec fine(std::uint32_t top_k = 1) {
  CompressedSparseSpec spec = coarse(4);
  spec.overlap = true;
  spec.selection = EntrySelection::kIndexer;
  spec.indexer = {.heads = 2, .dim = 4, .rope_dim = 4, .top_k = top_k};
  return spec;
}

Row turned(const CompressedSparseSpec& spec, std::int32_t position, bool inverse, Row head) {
  const RopeTable table(spec.rope);
  Row cos(spec.rope.rotary_dim / 2), sin(cos.size());
  table.angles({position, position, position}, cos, sin);
  rotate(spec.rope, cos, sin, inverse, head);
  return head;
}

/// One compressor of a layer: raw rows go in, finished entries come out and are kept.
struct EntryStream {
  EntryStream(const CompressedSparseSpec& layer, const CompressorSpec& compressor, unsigned seed)
      : spec(layer),
        stream(compressor),
        bias(random_row(stream.ratio * stream.channels(), seed)),
        weight(random_row(stream.width, seed + 1)),
        block(stream.frontier_size()) {}

  void feed(std::uint32_t p, const Row& values, const Row& gates) {
    Row pooled(stream.width);
    frontier.block = block;
    const std::size_t ch = stream.channels();
    const CompressStep step =
        compress(stream, bias, p, row_of(values, ch, p), row_of(gates, ch, p), frontier, pooled);
    EXPECT_NE(step, CompressStep::kRefused);
    if (step != CompressStep::kClosed) return;
    finish_entry(spec, table, weight, p / stream.ratio, pooled);
    entries.insert(entries.end(), pooled.begin(), pooled.end());
  }
  std::uint32_t count() const { return std::uint32_t(entries.size() / stream.width); }

  CompressedSparseSpec spec;
  CompressorSpec stream;
  RopeTable table{spec.rope};
  Row bias, weight, block, entries = {};
  Frontier frontier = {};
};

/// The inputs of a layer for n tokens, as its projections would give them.
struct Inputs {
  Inputs(const CompressedSparseSpec& spec, std::uint32_t n)
      : q(random_row(n * spec.heads * spec.head_dim, 1)),
        rows(random_row(n * spec.head_dim, 2)),
        values(random_row(n * spec.entries().channels(), 3)),
        gates(random_row(n * spec.entries().channels(), 4)),
        index_values(random_row(n * spec.index_entries().channels(), 5)),
        index_gates(random_row(n * spec.index_entries().channels(), 6)),
        index_q(random_row(n * spec.indexer.heads * spec.indexer.dim, 7)),
        index_w(random_row(n * spec.indexer.heads, 8)) {}
  Row q, rows, values, gates, index_values, index_gates, index_q, index_w;
};

/// What a sequence holds of a layer, and the layer's step over a chunk of rows.
struct Layer {
  explicit Layer(const CompressedSparseSpec& s)
      : spec(s), entries(s, s.entries(), 20), index(s, s.index_entries(), 30) {}

  Ids chosen(const Inputs& in, std::uint32_t p) const {
    const std::uint32_t visible = spec.visible_entries(p);
    Ids ids(visible);
    if (spec.selection == EntrySelection::kAll) {
      for (std::uint32_t i = 0; i < visible; ++i) ids[i] = i;
      return ids;
    }
    ids.resize(spec.indexer.top_k);
    Row scores(visible);
    ids.resize(select_entries(spec, row_of(in.index_q, spec.indexer.heads * spec.indexer.dim, p),
                              row_of(in.index_w, spec.indexer.heads, p), p,
                              rows_of(index.entries, spec.indexer.dim), scores, ids)
                   .value());
    return ids;
  }

  void run(const Inputs& in, std::uint32_t begin, std::uint32_t end, Row& out) {
    for (std::uint32_t p = begin; p < end && spec.ratio != 0; ++p) {
      entries.feed(p, in.values, in.gates);
      if (spec.selection == EntrySelection::kIndexer)
        index.feed(p, in.index_values, in.index_gates);
    }
    const std::size_t d = spec.head_dim;
    // The past is a ring of W - 1 rows, which takes the chunk's rows after they were attended to.
    const RowReader row = [&](std::uint32_t j) {
      return j >= begin ? row_of(in.rows, d, j) : row_of(ring, d, j % (spec.window - 1));
    };
    const float sink = 0.3f;
    for (std::uint32_t p = begin; p < end; ++p) {
      const Ids ids = chosen(in, p);
      for (std::uint32_t h = 0; h < spec.heads; ++h) {
        const std::size_t at = p * spec.heads + h;
        Row head(d);
        attend_compressed(spec, row_of(in.q, d, at), p, row, ids, rows_of(entries.entries, d),
                          &sink, head);
        head = turned(spec, std::int32_t(p), true, head);
        std::copy(head.begin(), head.end(), out.begin() + std::ptrdiff_t(at * d));
      }
    }
    for (std::uint32_t p = begin; p < end; ++p) {
      std::copy_n(in.rows.begin() + std::ptrdiff_t(p * d), d,
                  ring.begin() + std::ptrdiff_t(p % (spec.window - 1) * d));
    }
  }

  CompressedSparseSpec spec;
  EntryStream entries, index;
  Row ring = Row((spec.window - 1) * spec.head_dim, std::nanf(""));
};

Row whole_text(const CompressedSparseSpec& spec, std::uint32_t n) {
  Layer layer(spec);
  Row out(n * spec.heads * spec.head_dim);
  layer.run(Inputs(spec, n), 0, n, out);
  return out;
}

TEST(FinishEntry, NormalisesAndTurnsByTheFirstTokensPosition) {
  const CompressedSparseSpec spec = coarse(3);
  const RopeTable table(spec.rope);
  const Row weight = random_row(6, 1), pooled = random_row(6, 2);
  Row entry = pooled, normed(6);
  finish_entry(spec, table, weight, 5, entry);
  normalize({NormKind::kRms, spec.norm_eps}, pooled, weight, {}, normed);
  EXPECT_EQ(entry, turned(spec, 15, false, normed));
  EXPECT_NE(entry, turned(spec, 17, false, normed));
}

TEST(VisibleEntries, AreThoseThatClosedAtTheQueryOrBefore) {
  const CompressedSparseSpec spec = coarse(4);
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> want = {
      {0, 0}, {2, 0}, {3, 1}, {4, 1}, {6, 1}, {7, 2}, {10, 2}, {11, 3}};
  for (const auto& [p, count] : want) EXPECT_EQ(spec.visible_entries(p), count) << p;
  EXPECT_EQ(windowed().visible_entries(1000), 0u);
}

TEST(CompressedSparse, BeforeAnEntryIsMultiQueryAttentionTurnedBack) {
  CompressedSparseSpec spec = coarse(16);
  spec.window = 20;
  const std::uint32_t n = 15;
  const Inputs in(spec, n);
  const float sink = 0.3f;
  Row want;
  for (std::uint32_t p = 0; p < n; ++p) {
    for (std::uint32_t h = 0; h < 2; ++h) {
      Row head(6);
      attend(spec.core(), row_of(in.q, 6, p * 2 + h), p, {0, p + 1}, rows_of(in.rows, 6),
             rows_of(in.rows, 6), &sink, 0.f, head);
      head = turned(spec, std::int32_t(p), true, head);
      want.insert(want.end(), head.begin(), head.end());
    }
  }
  EXPECT_EQ(whole_text(spec, n), want);
}

TEST(CompressedSparse, OfOneVisibleKeyIsTheRowBeforeItsRotation) {
  CompressedSparseSpec spec = windowed(1);
  const Row kv = random_row(6, 1), query = random_row(6, 2);
  const Row row = turned(spec, 9, false, kv);
  const RowReader reader = [&](std::uint32_t) { return std::span<const float>(row); };
  Row out(6);
  attend_compressed(spec, query, 9, reader, VisibleRange{}, reader, nullptr, out);
  expect_near(turned(spec, 9, true, out), kv, tolerance::kRotate);
}

TEST(CompressedSparse, PutsTheWindowBeforeTheEntries) {
  const CompressedSparseSpec spec = coarse(3);
  const Row rows = random_row(5 * 6, 1), entries = random_row(6, 2), q = random_row(6, 3);
  Row joined(rows.begin() + 2 * 6, rows.end());  // the rows 2, 3, 4 that position 4 sees
  joined.insert(joined.end(), entries.begin(), entries.end());
  Row out(6), want(6);
  attend_compressed(spec, q, 4, rows_of(rows, 6), VisibleRange{0, 1}, rows_of(entries, 6), nullptr,
                    out);
  attend(spec.core(), q, 3, {0, 4}, rows_of(joined, 6), rows_of(joined, 6), nullptr, 0.f, want);
  EXPECT_EQ(out, want);
}

void expect_equal_for_all_cuts(const CompressedSparseSpec& spec, std::uint32_t n) {
  const Inputs in(spec, n);
  const Row want = whole_text(spec, n);
  Row out;
  std::optional<Layer> layer;
  for_all_cuts(
      n,
      [&](std::uint32_t cuts) {
        if (layer) {
          ASSERT_EQ(out, want) << cuts;
        }
        layer.emplace(spec);
        out.assign(want.size(), 0.f);
      },
      [&](std::uint32_t begin, std::uint32_t end) { layer->run(in, begin, end, out); });
  EXPECT_EQ(out, want);
}

TEST(CompressedSparse, GivesTheSameBitsForEveryChunkingWithAnIndexer) {
  expect_equal_for_all_cuts(fine(), 10);
}

TEST(CompressedSparse, GivesTheSameBitsForEveryChunkingOverAllEntries) {
  expect_equal_for_all_cuts(coarse(), 10);
}

TEST(CompressedSparse, GivesTheSameBitsForEveryChunkingOfTheWindowAlone) {
  expect_equal_for_all_cuts(windowed(), 8);
}

TEST(CompressedSparse, OfARowDependsOnItsPastOnly) {
  const Row whole = whole_text(fine(), 17);
  for (const std::uint32_t n : {1u, 3u, 4u, 7u, 8u, 9u, 16u}) {
    const Row part = whole_text(fine(), n);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << n;
  }
}

TEST(CompressedSparse, ClosesBothStreamsWithTheSameTokens) {
  Layer layer(fine());
  const Inputs in(layer.spec, 11);
  Row out(11 * 2 * 6);
  for (const auto& [begin, end] :
       std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 1}, {1, 3}, {3, 6}, {6, 11}}) {
    layer.run(in, begin, end, out);
    EXPECT_EQ(layer.entries.count(), end / 4);
    EXPECT_EQ(layer.index.count(), end / 4);
  }
  EXPECT_EQ(layer.entries.frontier.next, 11u);
}

TEST(CompressedSparse, WithKOfAllEntriesTakesThemAll) {
  CompressedSparseSpec all = fine();
  all.selection = EntrySelection::kAll;
  EXPECT_EQ(whole_text(fine(4), 17), whole_text(all, 17));
  EXPECT_EQ(whole_text(fine(100), 17), whole_text(all, 17));
  EXPECT_NE(whole_text(fine(3), 17), whole_text(all, 17));
}

TEST(SelectEntries, TakesTheLowestOfEqualScores) {
  const CompressedSparseSpec spec = fine(2);
  const Row keys(5 * 4, 0.f), query(8, 1.f), weights = {-1, 1};
  Row scores(5);
  Ids chosen(2);
  EXPECT_EQ(select_entries(spec, query, weights, 19, rows_of(keys, 4), scores, chosen), 2u);
  EXPECT_EQ(chosen, (Ids{0, 1}));
}

TEST(SelectEntries, HasNoneBeforeTheFirstCloses) {
  const CompressedSparseSpec spec = fine(2);
  Ids chosen(2);
  EXPECT_EQ(select_entries(spec, Row(8), Row(2), 2, nullptr, {}, chosen), 0u);
}

TEST(SelectEntries, RefusesScoresThatAreNotFinite) {
  const Row keys(5 * 4, std::nanf(""));
  Row scores(5);
  Ids chosen(1);
  EXPECT_FALSE(
      select_entries(fine(1), Row(8, 1.f), Row(2, 1.f), 19, rows_of(keys, 4), scores, chosen));
}

TEST(GroupedLinear, MultipliesEachGroupWithItsOwnBlock) {
  const GroupedLinearSpec spec{.groups = 2, .in = 2, .out = 1};
  Row y(2);
  grouped_linear(spec, Row{1, 2, 3, 4}, Row{1, 10, 100, 1000}, y);
  EXPECT_EQ(y, (Row{21, 4300}));
}

TEST(GroupedLinear, PutsTheResultsOfAGroupTogether) {
  const GroupedLinearSpec spec{.groups = 2, .in = 1, .out = 2};
  Row y(4);
  grouped_linear(spec, Row{1, 2, 3, 4}, Row{1, 10}, y);
  EXPECT_EQ(y, (Row{1, 2, 30, 40}));
}

TEST(GroupedLinear, MayShareOneBlock) {
  const GroupedLinearSpec spec{.groups = 2, .in = 2, .out = 2, .shared = true};
  Row y(4);
  grouped_linear(spec, Row{1, 2, 3, 4}, Row{1, 10, 100, 1000}, y);
  EXPECT_EQ(y, (Row{21, 43, 2100, 4300}));
}

TEST(GroupedLinear, OfOneGroupIsALinearMap) {
  const GroupedLinearSpec spec{.groups = 1, .in = 2, .out = 2};
  Row y(2);
  grouped_linear(spec, Row{1, 2, 3, 4}, Row{1, 10}, y);
  EXPECT_EQ(y, (Row{21, 43}));
}

CompressedSparseSpec full_size() {
  CompressedSparseSpec spec{.heads = 64, .head_dim = 512, .q_rank = 1024, .window = 128};
  spec.scale = 1.f / std::sqrt(512.f);
  spec.rope = {.rotary_dim = 64, .theta = 160000.f, .layout = RopeLayout::kInterleaved};
  spec.rope.placement = RopePlacement::kSuffix;
  spec.ratio = 4;
  spec.overlap = true;
  spec.selection = EntrySelection::kIndexer;
  spec.indexer = {.heads = 64, .dim = 128, .rope_dim = 64, .top_k = 512};
  spec.output_groups = 8;
  spec.output_rank = 1024;
  return spec;
}

TEST(CompressedSparseSpec, RemembersRowsEntriesIndexAndFrontiers) {
  const Slots slots = full_size().slots();
  ASSERT_EQ(slots.size(), 5u);
  EXPECT_EQ(slots[0], (Slot{.width = 512, .window = 128, .fp8 = Fp8Form::kLatent, .tail = 64}));
  EXPECT_EQ(slots[1], (Slot{.width = 512, .ratio = 4, .fp8 = Fp8Form::kLatent, .tail = 64}));
  EXPECT_EQ(slots[2], (Slot{.kind = SlotKind::kFixed, .width = 4 * (2 * 1024 + 2 * 512)}));
  EXPECT_EQ(slots[3], (Slot{.width = 128, .ratio = 4, .fp8 = Fp8Form::kIndex}));
  EXPECT_EQ(slots[4], (Slot{.kind = SlotKind::kFixed, .width = 4 * (2 * 256 + 2 * 128)}));
  EXPECT_EQ(windowed().slots().size(), 1u);
  EXPECT_EQ(coarse().slots().size(), 3u);
}

TEST(CompressedSparseSpec, ProjectsHeadsInGroups) {
  EXPECT_EQ(full_size().output(), (GroupedLinearSpec{.groups = 8, .in = 4096, .out = 1024}));
}

TEST(CompressedSparseSpec, NamesTheWrongField) {
  using Spec = CompressedSparseSpec;
  const Spec good = full_size();
  EXPECT_NO_THROW(good.validate());
  EXPECT_NO_THROW(windowed().validate());
  EXPECT_NO_THROW(coarse(128).validate());
  expect_refused(changed(good, &Spec::heads, 0u), "heads");
  expect_refused(changed(good, &Spec::head_dim, 0u), "head_dim");
  expect_refused(changed(good, &Spec::scale, 0.f), "scale");
  expect_refused(changed(good, &Spec::q_rank, 0u), "q_rank");
  expect_refused(changed(good, &Spec::window, 0u), "window");
  expect_refused(changed(good, &Spec::norm_eps, 0.f), "norm_eps");
  RopeSpec rope = good.rope;
  rope.placement = RopePlacement::kPrefix;
  expect_refused(changed(good, &Spec::rope, rope), "placement");
  expect_refused(changed(good, &Spec::rope, RopeSpec{}), "rotary_dim");
  expect_refused(changed(good, &Spec::output_groups, 0u), "output_groups");
  expect_refused(changed(good, &Spec::output_groups, 7u), "output_groups");
  expect_refused(changed(good, &Spec::output_rank, 0u), "out");
  expect_refused(changed(good, &Spec::ratio, 8u), "overlap");
  expect_refused(changed(good, &Spec::ratio, 0u), "overlap");
  expect_refused(changed(changed(good, &Spec::overlap, false), &Spec::ratio, 8u), "selection");
  expect_refused(changed(coarse(), &Spec::ratio, 1u), "ratio");
  expect_refused(changed(good, &Spec::indexer, IndexerSpec{}), "heads");
  expect_refused(changed(good, &Spec::indexer, changed(good.indexer, &IndexerSpec::rope_dim, 32u)),
                 "indexer.rope_dim");
}

TEST(GroupedLinearSpec, NamesTheWrongField) {
  const GroupedLinearSpec good{.groups = 8, .in = 4096, .out = 1024};
  EXPECT_NO_THROW(good.validate());
  expect_refused(changed(good, &GroupedLinearSpec::groups, 0u), "groups");
  expect_refused(changed(good, &GroupedLinearSpec::in, 0u), "in");
  expect_refused(changed(good, &GroupedLinearSpec::out, 0x20000000u), "out");
}

}  // namespace
}  // namespace lemma::algorithm
