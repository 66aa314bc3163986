// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/block.hpp"

#include <gtest/gtest.h>

#include "algorithm/attention/test_rows.hpp"

namespace lemma::algorithm {
namespace {

using namespace test;
using Ranges = std::vector<VisibleRange>;

BlockSpec one_head(std::uint32_t d) {
  return {{.query_heads = 1, .kv_heads = 1, .head_dim = d, .value_dim = d, .scale = 0.5f}};
}

Row attend_rows(const BlockSpec& spec, const Row& q, const Ranges& ranges,
                const std::vector<RowSegment>& segments) {
  const std::size_t d = spec.heads.head_dim;
  Row out(q.size());
  for (std::size_t row = 0; row < ranges.size(); ++row) {
    attend_block(spec, row_of(q, d, row), ranges[row], segments, nullptr,
                 std::span(out).subspan(row * d, d));
  }
  return out;
}

TEST(BlockAttention, WithCausalRangesIsCausalAttentionBitForBit) {
  const Row q = random_row(36, 1), k = random_row(36, 2), v = random_row(36, 3);
  const RowSegment all{9, rows_of(k, 4), rows_of(v, 4)};
  Ranges ranges;
  Row want(36);
  for (std::uint32_t p = 0; p < 9; ++p) {
    ranges.push_back({0, p + 1});
    attend(one_head(4).heads, row_of(q, 4, p), p, visible_range(p, 0), all.key, all.value, nullptr,
           0.f, std::span(want).subspan(p * 4, 4));
  }
  EXPECT_EQ(attend_rows(one_head(4), q, ranges, {all}), want);
}

TEST(BlockAttention, OfAZeroQueryIsTheMeanOfItsRange) {
  const Row q = {0, 0}, k = {1, 2, 3}, v = {2, 6, 10};
  EXPECT_EQ(attend_rows(one_head(1), q, {{0, 2}, {1, 3}}, {{3, rows_of(k, 1), rows_of(v, 1)}}),
            (Row{4, 8}));
}

TEST(BlockAttention, TakesRangesInAnyOrder) {
  const Row q(3, 0.f), k(6, 1.f), v = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(
      attend_rows(one_head(1), q, {{4, 6}, {0, 1}, {1, 4}}, {{6, rows_of(k, 1), rows_of(v, 1)}}),
      (Row{5.5f, 1, 3}));
}

TEST(BlockAttention, DoesNotSeeWhereSegmentsAreCut) {
  const Row q = random_row(12, 1), k = random_row(28, 2), v = random_row(28, 3);
  const Ranges ranges = {{0, 7}, {2, 5}, {6, 7}};
  const Row want = attend_rows(one_head(4), q, ranges, {{7, rows_of(k, 4), rows_of(v, 4)}});
  for (std::uint32_t cuts = 0; cuts < 1u << 6; ++cuts) {
    std::vector<RowSegment> segments;
    for (std::uint32_t begin = 0, end = 0; begin < 7; begin = end) {
      for (end = begin + 1; end < 7 && (cuts >> (end - 1) & 1u) == 0;) ++end;
      const auto shifted = [begin, end](const Row& rows) -> RowReader {
        return [&rows, begin, end](std::uint32_t j) {
          EXPECT_LT(j, end - begin);
          return row_of(rows, 4, begin + j);
        };
      };
      segments.push_back({end - begin, shifted(k), shifted(v)});
      segments.push_back({0, nullptr, nullptr});  // an empty one changes nothing either
    }
    EXPECT_EQ(attend_rows(one_head(4), q, ranges, segments), want) << cuts;
  }
}

TEST(BlockAttention, LetsASinkTakeWeight) {
  const Row k = {0}, v = {6}, q = {1};
  const float sink = 0.f;
  Row out(1);
  const RowSegment segment{1, rows_of(k, 1), rows_of(v, 1)};
  attend_block(one_head(1), q, {0, 1}, {&segment, 1}, &sink, out);
  EXPECT_EQ(out[0], 3.f);
}

TEST(CheckRanges, NamesTheRowThatIsWrong) {
  EXPECT_NO_THROW(check_ranges(Ranges{{0, 3}, {2, 3}}, 2, 3));
  for (const VisibleRange bad : {VisibleRange{2, 2}, VisibleRange{2, 1}, VisibleRange{0, 4}}) {
    try {
      check_ranges(Ranges{{0, 3}, bad}, 2, 3);
      ADD_FAILURE() << bad.begin << " " << bad.end;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_NE(std::string(error.what()).find("row 1"), std::string::npos) << error.what();
    }
  }
}

TEST(CheckRanges, WantsOnePerRow) {
  EXPECT_THROW(check_ranges(Ranges{{0, 1}}, 2, 3), Error);
}

TEST(DraftRanges, OfABlockShareOneLeftEdge) {
  EXPECT_EQ(draft_ranges(DraftVisibility::kBlock, 5, 3, 4), (Ranges{{1, 8}, {1, 8}, {1, 8}}));
  EXPECT_EQ(draft_ranges(DraftVisibility::kBlock, 2, 2, 4), (Ranges{{0, 4}, {0, 4}}));
  EXPECT_EQ(draft_ranges(DraftVisibility::kCausal, 5, 3, 4), (Ranges{{1, 6}, {1, 7}, {1, 8}}));
}

TEST(DraftRanges, ByDistanceHaveTheirOwnLeftEdge) {
  EXPECT_EQ(draft_ranges(DraftVisibility::kDistance, 4, 3, 3), (Ranges{{2, 7}, {3, 7}, {4, 7}}));
  EXPECT_EQ(draft_ranges(DraftVisibility::kDistance, 0, 3, 3), (Ranges{{0, 3}, {0, 3}, {0, 3}}));
  EXPECT_EQ(draft_ranges(DraftVisibility::kDistance, 4, 4, 2),
            (Ranges{{3, 6}, {4, 7}, {5, 8}, {6, 8}}));
}

TEST(DraftRanges, WithoutAWindowSeeAll) {
  for (const auto visibility : {DraftVisibility::kBlock, DraftVisibility::kDistance}) {
    EXPECT_EQ(draft_ranges(visibility, 4, 2, 0), (Ranges{{0, 6}, {0, 6}}));
  }
}

TEST(BlockSpec, NamesTheWrongField) {
  const BlockSpec good = one_head(4);
  EXPECT_NO_THROW(good.validate());
  const auto with = [&](auto member, auto value) {
    return BlockSpec{changed(good.heads, member, value)};
  };
  expect_refused(with(&GqaSpec::head_dim, 0u), "head_dim");
  expect_refused(with(&GqaSpec::window, 4u), "window");
  expect_refused(with(&GqaSpec::alibi_max_bias, 8.f), "alibi_max_bias");
  BlockSpec warm = with(&GqaSpec::temperature_scale, 0.1f);
  warm.heads.temperature_floor = 8;
  expect_refused(warm, "temperature_scale");
}

}  // namespace
}  // namespace lemma::algorithm
