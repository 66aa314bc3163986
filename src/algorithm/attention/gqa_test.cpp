// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/gqa.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "algorithm/tolerance.hpp"
#include "lemma/error.hpp"

namespace lemma::algorithm {
namespace {

using Row = std::vector<float>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Row random_row(std::size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Row row(n);
  for (float& value : row) value = normal(generator);
  return row;
}

RowReader rows_of(const Row& data, std::size_t width) {
  return [&data, width](std::uint32_t j) { return std::span(data).subspan(j * width, width); };
}

GqaSpec one_head(std::uint32_t dim, float scale = 1.f) {
  return {.query_heads = 1, .kv_heads = 1, .head_dim = dim, .value_dim = dim, .scale = scale};
}

/// One head of width 1 with query 1 at the last key: the keys are the scores.
float attend_scores(const GqaSpec& spec, const Row& scores, const Row& values,
                    const float* sink = nullptr, float slope = 0.f) {
  const auto n = std::uint32_t(scores.size());
  Row query = {1.f}, out(1);
  attend(spec, query, n - 1, {0, n}, rows_of(scores, 1), rows_of(values, 1), sink, slope, out);
  return out[0];
}

/// All queries of one head, one after the other: row p of q attends under the spec's window.
Row attend_sequence(const GqaSpec& spec, const Row& q, const RowReader& key,
                    const RowReader& value) {
  const std::size_t d = spec.head_dim, dv = spec.value_dim, n = q.size() / d;
  Row out(n * dv);
  for (std::uint32_t p = 0; p < n; ++p) {
    attend(spec, std::span(q).subspan(p * d, d), p, visible_range(p, spec.window), key, value,
           nullptr, 0.f, std::span(out).subspan(p * dv, dv));
  }
  return out;
}

TEST(VisibleRange, CountsTheQueryAmongItsWindow) {
  EXPECT_EQ(visible_range(0, 0), (VisibleRange{0, 1}));
  EXPECT_EQ(visible_range(9, 0), (VisibleRange{0, 10}));
  EXPECT_EQ(visible_range(9, 1), (VisibleRange{9, 10}));
  EXPECT_EQ(visible_range(7, 8), (VisibleRange{0, 8}));
  EXPECT_EQ(visible_range(8, 8), (VisibleRange{1, 9}));  // at length 9 the keys 1 to 8
  for (std::uint32_t p = 5; p < 20; ++p) {
    const VisibleRange range = visible_range(p, 8);
    EXPECT_EQ(range.end, p + 1);
    EXPECT_EQ(range.end - range.begin, std::min(p + 1, 8u));
  }
}

TEST(VisibleRange, LooksAheadToABlockEndFromItsOwnLeftEdge) {
  EXPECT_EQ(visible_range(3, 2, 8), (VisibleRange{2, 8}));
  EXPECT_EQ(visible_range(3, 0, 2), (VisibleRange{0, 4}));
}

TEST(Attend, OfAZeroQueryIsTheMeanOfVisibleValues) {
  const Row q = {0, 0}, k = {5, -3}, v = {2, 6};
  EXPECT_EQ(attend_sequence(one_head(1), q, rows_of(k, 1), rows_of(v, 1)), (Row{2, 4}));
}

TEST(Attend, TakesTheDotProductTimesTheScale) {
  GqaSpec spec = one_head(2, 0.5f);
  spec.value_dim = 1;
  const Row query = {3, 4}, k = {1, 0, 0, 1}, v = {0, 1};
  Row out(1);
  attend(spec, query, 1, {0, 2}, rows_of(k, 2), rows_of(v, 1), nullptr, 0.f, out);
  EXPECT_FLOAT_EQ(out[0], 1.f / (1.f + std::exp(-0.5f)));
}

TEST(Attend, AgreesWithASoftmaxInDoublePrecision) {
  const std::uint32_t d = 32, n = 50;
  const GqaSpec spec = one_head(d, 1.f / std::sqrt(float(d)));
  const Row q = random_row(d, 1), k = random_row(n * d, 2), v = random_row(n * d, 3);
  Row out(d);
  attend(spec, q, n - 1, {0, n}, rows_of(k, d), rows_of(v, d), nullptr, 0.f, out);
  std::vector<double> want(d), weight(n);
  double mass = 0.0, largest = 0.0;
  for (std::size_t j = 0; j < n; ++j) {
    double score = 0.0;
    for (std::size_t i = 0; i < d; ++i) score += double(q[i]) * double(k[j * d + i]);
    mass += weight[j] = std::exp(score * double(spec.scale));
  }
  for (std::size_t i = 0; i < d; ++i) {
    for (std::size_t j = 0; j < n; ++j) want[i] += weight[j] / mass * double(v[j * d + i]);
    largest = std::max(largest, std::abs(want[i]));
  }
  for (std::size_t i = 0; i < d; ++i) {
    EXPECT_TRUE(tolerance::kAttend.admits(out[i], want[i], largest)) << out[i] << " " << want[i];
  }
}

TEST(Attend, WithAWindowAsLongAsTheTextIsFullAttention) {
  GqaSpec spec = one_head(4, 0.5f);
  const Row q = random_row(36, 1), k = random_row(36, 2), v = random_row(36, 3);
  const Row full = attend_sequence(spec, q, rows_of(k, 4), rows_of(v, 4));
  for (const std::uint32_t window : {9u, 10u, 1000u}) {
    spec.window = window;
    EXPECT_EQ(attend_sequence(spec, q, rows_of(k, 4), rows_of(v, 4)), full);
  }
  spec.window = 8;
  EXPECT_NE(attend_sequence(spec, q, rows_of(k, 4), rows_of(v, 4)), full);
}

TEST(Attend, WithAWindowOfOneReturnsItsOwnValue) {
  GqaSpec spec = one_head(4, 0.5f);
  spec.window = 1;
  const Row q = random_row(36, 1), k = random_row(36, 2), v = random_row(36, 3);
  EXPECT_EQ(attend_sequence(spec, q, rows_of(k, 4), rows_of(v, 4)), v);
}

/// The keys and values of a sequence that keeps its last `capacity` rows in a ring and reads the
/// rows of the running chunk before they are kept.
struct Ring {
  std::size_t capacity, width;
  Row slots = Row(capacity * width, std::nanf(""));

  void keep(const Row& rows, std::size_t begin, std::size_t end) {
    for (std::size_t p = begin; p < end; ++p) {
      std::copy_n(rows.begin() + std::ptrdiff_t(p * width), width,
                  slots.begin() + std::ptrdiff_t(p % capacity * width));
    }
  }
  RowReader reader(const Row& rows, std::size_t chunk_begin) const {
    return [this, &rows, chunk_begin](std::uint32_t j) {
      return j >= chunk_begin ? std::span(rows).subspan(j * width, width)
                              : std::span(slots).subspan(j % capacity * width, width);
    };
  }
};

TEST(Attend, GivesTheSameBitsForEveryChunkingOverARing) {
  const std::uint32_t d = 4, n = 9;
  GqaSpec spec = one_head(d, 0.5f);
  spec.window = 4;
  const Row q = random_row(n * d, 1), k = random_row(n * d, 2), v = random_row(n * d, 3);
  const Row want = attend_sequence(spec, q, rows_of(k, d), rows_of(v, d));
  for (std::uint32_t cuts = 0; cuts < 1u << (n - 1); ++cuts) {  // bit p: a chunk ends after row p
    Ring keys{4, d}, values{4, d};
    Row out(n * d);
    for (std::uint32_t begin = 0, end = 0; begin < n; begin = end) {
      for (end = begin + 1; end < n && (cuts >> (end - 1) & 1u) == 0;) ++end;
      for (std::uint32_t p = begin; p < end; ++p) {
        attend(spec, std::span(q).subspan(p * d, d), p, visible_range(p, 4), keys.reader(k, begin),
               values.reader(v, begin), nullptr, 0.f, std::span(out).subspan(p * d, d));
      }
      keys.keep(k, begin, end);
      values.keep(v, begin, end);
    }
    ASSERT_EQ(out, want) << "cuts " << cuts;
  }
}

TEST(Attend, NeverReadsOutsideItsRange) {
  GqaSpec spec = one_head(4, 0.5f);
  const Row q = random_row(4, 1), k = random_row(36, 2), v = random_row(36, 3);
  Row clean(4), poisoned(4), bad_k = k, bad_v = v;
  attend(spec, q, 5, {2, 6}, rows_of(k, 4), rows_of(v, 4), nullptr, 0.f, clean);
  for (std::size_t i = 0; i < k.size(); ++i) {
    if (i < 8 || i >= 24) bad_k[i] = bad_v[i] = std::nanf("");
  }
  attend(spec, q, 5, {2, 6}, rows_of(bad_k, 4), rows_of(bad_v, 4), nullptr, 0.f, poisoned);
  EXPECT_EQ(poisoned, clean);
}

TEST(Attend, LetsANaNKeyOrValueThrough) {
  const float nan = std::nanf("");
  EXPECT_TRUE(std::isnan(attend_scores(one_head(1), {0, nan}, {1, 2})));
  EXPECT_TRUE(std::isnan(attend_scores(one_head(1), {nan, 0}, {1, 2})));
  EXPECT_TRUE(std::isnan(attend_scores(one_head(1), {0, 0}, {nan, 2})));
}

TEST(Attend, StaysFiniteForLargeScores) {
  EXPECT_EQ(attend_scores(one_head(1), {1e30f, -1e30f}, {1, 2}), 1.f);
  EXPECT_EQ(attend_scores(one_head(1), {-1e30f, -1e30f}, {1, 3}), 2.f);
}

TEST(AttendSink, TakesWeightAndAddsNoValue) {
  const float zero = 0.f, half = 0.5f;
  EXPECT_EQ(attend_scores(one_head(1), {0}, {6}, &zero), 3.f);
  EXPECT_NEAR(attend_scores(one_head(1), {0, 1}, {0, 1}, &half), 0.506480f, 5e-7);
}

TEST(AttendSink, OfMinusInfinityIsNone) {
  const float never = -kInfinity;
  const Row scores = {0.3f, -1, 2}, values = {1, 2, 3};
  EXPECT_EQ(attend_scores(one_head(1), scores, values, &never),
            attend_scores(one_head(1), scores, values));
}

TEST(AttendSink, LargerThanEveryScoreTakesItAll) {
  const float huge = 1e4f;
  EXPECT_EQ(attend_scores(one_head(1), {0, 1}, {1, 2}, &huge), 0.f);
}

TEST(AttendSink, IsSubtractedWhenItIsTheLargest) {
  // exp(90) is beyond f32; exp(0 - 90), a subnormal, is not.
  const float sink = 90.f;
  EXPECT_NEAR(attend_scores(one_head(1), {0}, {1e38f}, &sink), 0.0819401f, 1e-5f);
}

TEST(AttendSink, IsNeitherScaledNorCapped) {
  GqaSpec spec = one_head(1, 0.25f);
  spec.softcap = 1.f;
  const float sink = 2.f;
  const float score = std::tanh(0.25f * 3.f);
  const float want = std::exp(score) / (std::exp(score) + std::exp(2.f));
  EXPECT_FLOAT_EQ(attend_scores(spec, {3}, {1}, &sink), want);
}

TEST(AttendSoftcap, BoundsTheScores) {
  GqaSpec spec = one_head(1);
  spec.softcap = 1.f;
  EXPECT_FLOAT_EQ(attend_scores(spec, {1e30f, -1e30f}, {1, 0}), 1.f / (1.f + std::exp(-2.f)));
}

TEST(AttendSoftcap, OfAMillionChangesNothing) {
  GqaSpec spec = one_head(1);
  const Row scores = {0.3f, -1, 2}, values = {1, 2, 3};
  const float plain = attend_scores(spec, scores, values);
  spec.softcap = 1e6f;
  EXPECT_FLOAT_EQ(attend_scores(spec, scores, values), plain);
}

TEST(AttendAlibi, FavoursNearKeysBySlope) {
  const Row zeros = {0, 0, 0};
  const float a = std::exp(-1.f), b = std::exp(-0.5f);
  EXPECT_FLOAT_EQ(attend_scores(one_head(1), zeros, {1, 0, 0}, nullptr, 0.5f), a / (a + b + 1.f));
  EXPECT_FLOAT_EQ(attend_scores(one_head(1), zeros, {0, 0, 1}, nullptr, 0.5f), 1.f / (a + b + 1.f));
}

TEST(QueryTemperature, RisesOncePerLength) {
  GqaSpec spec = one_head(1);
  EXPECT_EQ(query_temperature(spec, 100000), 1.f);
  spec.temperature_scale = 0.1f;
  spec.temperature_floor = 8;
  EXPECT_EQ(query_temperature(spec, 0), 1.f);
  EXPECT_EQ(query_temperature(spec, 7), 1.f);
  EXPECT_FLOAT_EQ(query_temperature(spec, 8), 1.06931472f);   // 1 + 0.1 ln 2
  EXPECT_FLOAT_EQ(query_temperature(spec, 23), 1.10986123f);  // 1 + 0.1 ln 3
}

TEST(QueryTemperature, MultipliesTheQuery) {
  GqaSpec spec = one_head(1);
  spec.temperature_scale = 1.f;
  spec.temperature_floor = 1;
  const float factor = 1.f + std::log(2.f);  // of the query at position 1
  EXPECT_FLOAT_EQ(attend_scores(spec, {0, 1}, {0, 1}), 1.f / (1.f + std::exp(-factor)));
}

TEST(AlibiSlopes, FormOneGeometricSequenceForAPowerOfTwo) {
  EXPECT_EQ(alibi_slopes(4, 8.f), (Row{0x1p-2f, 0x1p-4f, 0x1p-6f, 0x1p-8f}));
  EXPECT_EQ(alibi_slopes(1, 8.f), (Row{0x1p-8f}));
}

TEST(AlibiSlopes, FillUpFromTheNextPowerOfTwoOtherwise) {
  // The published slopes of 12 heads.
  const Row want = {0.5f,       0.25f,       0.125f,      0.0625f,     0.03125f,    0.015625f,
                    0.0078125f, 0.00390625f, 0.70710677f, 0.35355338f, 0.17677669f, 0.088388346f};
  const Row slopes = alibi_slopes(12, 8.f);
  ASSERT_EQ(slopes.size(), want.size());
  for (std::size_t h = 0; h < want.size(); ++h) EXPECT_FLOAT_EQ(slopes[h], want[h]) << h;
}

TEST(GqaSpec, GivesNeighbouringQueryHeadsOneKvHead) {
  const GqaSpec spec{.query_heads = 6, .kv_heads = 3};
  std::vector<std::uint32_t> heads;
  for (std::uint32_t h = 0; h < 6; ++h) heads.push_back(spec.kv_head(h));
  EXPECT_EQ(heads, (std::vector<std::uint32_t>{0, 0, 1, 1, 2, 2}));
}

TEST(GqaSpec, RemembersARowOfKeysAndARowOfValues) {
  const GqaSpec spec{
      .query_heads = 8, .kv_heads = 2, .head_dim = 80, .value_dim = 64, .scale = 1.f, .window = 7};
  const Slots slots = spec.slots();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0], (Slot{.width = 160, .window = 7, .group = 16}));
  EXPECT_EQ(slots[1], (Slot{.width = 128, .window = 7, .group = 32}));
}

void expect_refused(GqaSpec spec, const std::string& field) {
  try {
    spec.validate();
    ADD_FAILURE() << field << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
  }
}

TEST(GqaSpec, NamesTheWrongField) {
  const GqaSpec good{
      .query_heads = 8, .kv_heads = 2, .head_dim = 64, .value_dim = 64, .scale = 0.125f};
  EXPECT_NO_THROW(good.validate());
  const auto changed = [&](auto member, auto value) {
    GqaSpec spec = good;
    spec.*member = value;
    return spec;
  };
  expect_refused(changed(&GqaSpec::query_heads, 0u), "query_heads");
  expect_refused(changed(&GqaSpec::kv_heads, 0u), "kv_heads");
  expect_refused(changed(&GqaSpec::kv_heads, 3u), "kv_heads");
  expect_refused(changed(&GqaSpec::head_dim, 0u), "head_dim");
  expect_refused(changed(&GqaSpec::head_dim, 0x20000000u), "head_dim");
  expect_refused(changed(&GqaSpec::value_dim, 0u), "value_dim");
  for (const float bad : {-1.f, std::nanf(""), kInfinity}) {
    expect_refused(changed(&GqaSpec::scale, bad), "scale");
    expect_refused(changed(&GqaSpec::softcap, bad), "softcap");
    expect_refused(changed(&GqaSpec::alibi_max_bias, bad), "alibi_max_bias");
  }
  expect_refused(changed(&GqaSpec::scale, 0.f), "scale");
  expect_refused(changed(&GqaSpec::temperature_scale, kInfinity), "temperature_scale");
  expect_refused(changed(&GqaSpec::temperature_scale, 0.1f), "temperature_floor");
}

}  // namespace
}  // namespace lemma::algorithm
