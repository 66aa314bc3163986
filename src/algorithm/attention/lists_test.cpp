// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/lists.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "algorithm/attention/test_rows.hpp"

namespace lemma::algorithm {
namespace {

using namespace test;

GqaSpec one_head(std::uint32_t d, float scale = 0.5f) {
  return {.query_heads = 1, .kv_heads = 1, .head_dim = d, .value_dim = d, .scale = scale};
}

Row attend_over(const GqaSpec& head, const Row& query, const std::vector<RowSource>& sources,
                const float* sink = nullptr) {
  Row out(head.value_dim, 99.f);
  attend_lists(head, query, 20, sources, sink, out);
  return out;
}

struct Keys {
  Row k = random_row(80, 2), v = random_row(80, 3), q = random_row(4, 1);
  RowReader key = rows_of(k, 4), value = rows_of(v, 4);
};

TEST(RowIndices, AreARangeOrAList) {
  const RowIndices range(VisibleRange{3, 5});
  EXPECT_EQ(range.size(), 2u);
  EXPECT_EQ(range[0], 3u);
  EXPECT_EQ(range[1], 4u);
  const Ids ids = {7, 9, 12};
  const RowIndices list(ids);
  EXPECT_EQ(list.size(), 3u);
  EXPECT_EQ(list[2], 12u);
  EXPECT_EQ(RowIndices(VisibleRange{4, 4}).size(), 0u);
  EXPECT_EQ(RowIndices(std::span<const std::uint32_t>()).size(), 0u);
}

TEST(AttendLists, OverARangeIsCausalAttentionBitForBit) {
  const Keys rows;
  GqaSpec head = one_head(4);
  head.softcap = 2.f;
  head.temperature_scale = 0.3f;
  head.temperature_floor = 4;
  for (const float sink : {-kInfinity, 0.4f}) {
    Row want(4);
    attend(head, rows.q, 20, {3, 17}, rows.key, rows.value, &sink, 0.f, want);
    EXPECT_EQ(attend_over(head, rows.q, {{VisibleRange{3, 17}, rows.key, rows.value}}, &sink),
              want);
  }
}

TEST(AttendLists, OverTheListOfARangeIsTheRangeBitForBit) {
  const Keys rows;
  Ids all(14);
  std::iota(all.begin(), all.end(), 3u);
  EXPECT_EQ(attend_over(one_head(4), rows.q, {{all, rows.key, rows.value}}),
            attend_over(one_head(4), rows.q, {{VisibleRange{3, 17}, rows.key, rows.value}}));
}

TEST(AttendLists, JoinsSourcesUnderOneSoftmax) {
  const Keys rows;
  const Row want = attend_over(one_head(4), rows.q, {{VisibleRange{0, 20}, rows.key, rows.value}});
  for (std::uint32_t cut = 0; cut <= 20; ++cut) {
    EXPECT_EQ(attend_over(one_head(4), rows.q,
                          {{VisibleRange{0, cut}, rows.key, rows.value},
                           {VisibleRange{cut, 20}, rows.key, rows.value}}),
              want);
  }
}

TEST(AttendLists, WeighsTwoSourcesAlike) {
  const Row key = {0}, two = {2}, six = {6};
  const RowReader k = rows_of(key, 1), a = rows_of(two, 1), b = rows_of(six, 1);
  EXPECT_EQ(attend_over(one_head(1), {1}, {{VisibleRange{0, 1}, k, a}, {VisibleRange{0, 1}, k, b}}),
            (Row{4}));
}

TEST(AttendLists, SkipsEmptySources) {
  const Keys rows;
  const RowSource none{VisibleRange{0, 0}, rows.key, rows.value};
  const RowSource some{VisibleRange{2, 9}, rows.key, rows.value};
  const Row want = attend_over(one_head(4), rows.q, {some});
  EXPECT_EQ(attend_over(one_head(4), rows.q, {none, some}), want);
  EXPECT_EQ(attend_over(one_head(4), rows.q, {some, none}), want);
}

TEST(AttendLists, OfASinkAloneIsZero) {
  const Keys rows;
  const float sink = 0.5f;
  EXPECT_EQ(attend_over(one_head(4), rows.q, {{VisibleRange{0, 0}, rows.key, rows.value}}, &sink),
            (Row{0, 0, 0, 0}));
}

TEST(AttendLists, ReadsNothingButTheList) {
  Keys rows;
  const Ids ids = {1, 4, 9};
  const RowSource list{ids, rows.key, rows.value};
  const Row want = attend_over(one_head(4), rows.q, {list});
  for (std::size_t i = 0; i < rows.k.size(); ++i) {
    if (i / 4 != 1 && i / 4 != 4 && i / 4 != 9) rows.k[i] = rows.v[i] = std::nanf("");
  }
  EXPECT_EQ(attend_over(one_head(4), rows.q, {list}), want);
}

TEST(AttendLists, LetsANaNThrough) {
  Keys rows;
  rows.k[4 * 4] = std::nanf("");
  EXPECT_TRUE(std::isnan(
      attend_over(one_head(4), rows.q, {{VisibleRange{0, 9}, rows.key, rows.value}})[0]));
}

TEST(GateOutput, MultipliesByTheSigmoidOfTheGate) {
  Row x = {3, 4, 5};
  gate_output(Row{0, -1e4f, 1e4f}, x);
  EXPECT_EQ(x, (Row{1.5f, 0, 5}));
}

}  // namespace
}  // namespace lemma::algorithm
