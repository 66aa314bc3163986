// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/pieces.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"

namespace lemma::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
/// Queries that one tile of a product takes: rows that see different runs are multiplied with the
/// values that all of a tile see, and alone with the rest.
constexpr std::size_t kTileQueries = 8;
constexpr std::size_t kBytes16 = 2;  ///< of an element that is read in place
constexpr std::size_t kLine = 64;    ///< bytes
/// Added to the distance of rows, so that the same columns of 64 rows do not meet in a few sets of
/// the cache when the width is a power of two.
constexpr std::size_t kSkew = 16;

/// What is to be asked for from row `row` on.
Ahead ahead(const Ahead& all, std::size_t row) noexcept {
  if (all.first == nullptr) return {};
  return {all.first + row * all.stride, all.stride};
}

}  // namespace

Pieces::Pieces(const WholeAttention* whole, std::size_t queries, std::size_t key_dim,
               std::size_t value_dim, bool shared)
    : key_dim_(key_dim),
      key_width_(padded(key_dim)),
      value_width_(padded(value_dim)),
      value_dim_(value_dim),
      key_stride_(key_width_ + kSkew),
      value_stride_(shared ? key_stride_ : value_width_ + kSkew),
      shared_(shared),
      keys_(kPiece * key_stride_),
      panels_(kPiece * key_width_),
      values_(shared ? 0 : kPiece * value_stride_),
      weights_(queries * kPiece),
      parts_(queries * value_width_),
      part_largest_(queries),
      part_mass_(queries * kPanelRows),
      sums_(queries * value_width_),
      largest_(queries),
      mass_(queries),
      visible_{} {
  LEMMA_CHECK(!shared || value_dim <= key_dim);
  if (whole != nullptr) make_codes(*whole, queries);
}

void Pieces::begin(const Queries& queries, bool entered) noexcept {
  queries_ = queries;
  LEMMA_CHECK(queries.all() <= mass_.size());
  codes_.used = entered && codes_.kernels != nullptr;
  if (codes_.used) round_queries();
  begin_again();
}

void Pieces::begin_again() noexcept {
  const std::size_t count = queries_.all();
  std::fill_n(largest_.begin(), count, kMinusInfinity);
  std::fill_n(mass_.begin(), count, 0.f);
  std::fill_n(sums_.begin(), count * value_width_, 0.f);
}

Pieces::Run Pieces::within(algorithm::VisibleRange range, std::size_t start) noexcept {
  const std::size_t begin = std::max<std::size_t>(range.begin, start);
  const std::size_t end = std::min<std::size_t>(range.end, start + kPiece);
  if (begin >= end) return {};
  return {begin - start, end - start};
}

void Pieces::attend(const KernelTable& kernels, const ScoreRule& rule,
                    std::span<const algorithm::VisibleRange> ranges, Decode decode) noexcept {
  const std::size_t begin = ranges.front().begin, end = ranges.back().end;
  for (std::size_t start = begin / kPiece * kPiece; start < end; start += kPiece) {
    const std::size_t from = std::max(begin, start);
    begin_span(start / kSpan + 1);
    for (group_ = 0; group_ < queries_.groups; ++group_) {
      in_place_ = decode(static_cast<std::uint32_t>(from), std::min(end, start + kPiece) - from,
                         from - start, group_);
      attend_piece(kernels, rule, ranges, start);
    }
  }
  end_span();
}

/// The rows of the block that see anything of the piece follow each other.
void Pieces::attend_piece(const KernelTable& kernels, const ScoreRule& rule,
                          std::span<const algorithm::VisibleRange> ranges,
                          std::size_t start) noexcept {
  std::size_t first = 0, last = queries_.rows;
  while (first < last && within(ranges[first], start).empty()) ++first;
  while (first < last && within(ranges[last - 1], start).empty()) --last;
  if (first == last) return;
  const Run all{within(ranges[first], start).begin, within(ranges[last - 1], start).end};
  if (codes_.used) {
    take_codes({&all, 1});
    multiply_codes(first, last - first, all);
  } else {
    transpose_keys(kernels, all);
    multiply_keys(kernels, first, last - first, all);
  }
  for (std::size_t i = first; i < last; ++i) {
    const Run run = within(ranges[i], start);
    soften(kernels, rule, i, {&run, 1}, start);
  }
  if (codes_.used) return add_coded_values(first, last - first);
  const std::size_t step = within(ranges[first], start) == within(ranges[last - 1], start)
                               ? last - first
                               : std::max<std::size_t>(1, kTileQueries / queries_.heads);
  for (std::size_t i = first; i < last; i += step) {
    const std::size_t rows = std::min(step, last - i);
    // Begins and ends ascend, so this is what all of the tile see.
    const Run front = within(ranges[i], start), back = within(ranges[i + rows - 1], start);
    const Run common{back.begin, std::max(back.begin, front.end)};
    for (std::size_t r = i; r < i + rows; ++r) {
      const Run run = within(ranges[r], start);
      add_values(kernels, r, 1, {run.begin, std::min(run.end, common.begin)});
    }
    add_values(kernels, i, rows, common);
    for (std::size_t r = i; r < i + rows; ++r) {
      const Run run = within(ranges[r], start);
      add_values(kernels, r, 1, {std::max(run.begin, common.end), run.end});
    }
  }
}

void Pieces::attend(const KernelTable& kernels, const ScoreRule& rule,
                    std::span<const std::uint32_t> list, Decode decode) noexcept {
  LEMMA_CHECK(queries_.rows == 1 && queries_.groups == 1);
  group_ = 0;
  std::array<Run, kPiece / 2> runs;  // two runs of a piece have a row between them
  for (std::size_t n = 0; n < list.size();) {
    const std::size_t start = list[n] / kPiece * kPiece;
    std::size_t count = 0;
    for (; n < list.size() && list[n] < start + kPiece; ++n) {
      const std::size_t place = list[n] - start;
      if (count > 0 && runs[count - 1].end == place) {
        ++runs[count - 1].end;
      } else {
        runs[count++] = {place, place + 1};
      }
    }
    in_place_ = {};
    for (const Run& run : Runs(runs.data(), count)) {
      decode(static_cast<std::uint32_t>(start + run.begin), run.end - run.begin, run.begin, group_);
    }
    begin_span(start / kSpan + 1);
    attend_runs(kernels, rule, {runs.data(), count}, start);
  }
  end_span();
}

/// What the one row sees of the piece.
void Pieces::attend_runs(const KernelTable& kernels, const ScoreRule& rule, Runs runs,
                         std::size_t start) noexcept {
  const Run all{runs.front().begin, runs.back().end};
  if (codes_.used) {
    take_codes(runs);
    multiply_codes(0, 1, all);
    soften(kernels, rule, 0, runs, start);
    return add_coded_values(0, 1);
  }
  transpose_keys(kernels, all);
  multiply_keys(kernels, 0, 1, all);
  soften(kernels, rule, 0, runs, start);
  for (const Run& run : runs) add_values(kernels, 0, 1, run);
}

void Pieces::begin_span(std::size_t span) noexcept {
  if (span == span_) return;
  end_span();
  span_ = span;
  const std::size_t count = queries_.all();
  std::fill_n(part_largest_.begin(), count, kMinusInfinity);
  std::fill_n(part_mass_.begin(), count * kPanelRows, 0.f);
  std::fill_n(parts_.begin(), count * value_width_, 0.f);
}

void Pieces::end_span() noexcept {
  if (span_ == 0) return;
  span_ = 0;
  for (std::size_t q = 0; q < queries_.all(); ++q) {
    float* const lanes = part_mass_.data() + q * kPanelRows;
    for (std::size_t half = kPanelRows / 2; half > 0; half /= 2) {
      for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    merge(q, part_largest_[q], lanes[0], parts_.data() + q * value_width_);
  }
}

void Pieces::transpose_keys(const KernelTable& kernels, Run places) noexcept {
  for (std::size_t place = places.begin / kPanelRows * kPanelRows; place < places.end;
       place += kPanelRows) {
    float* const panel = panels_.data() + place * key_width_;
    if (in_place_.keys == nullptr) {
      kernels.transpose(key(place), key_stride_, key_width_, panel);
    } else {
      kernels.transpose16[in_place_.format](
          in_place_.keys + place * in_place_.key_stride * kBytes16, in_place_.key_stride,
          key_width_, ahead(in_place_.next_keys, place), panel);
    }
  }
}

/// Products of `rows` rows' queries with the keys at `places`, widened to whole panels.
void Pieces::multiply_keys(const KernelTable& kernels, std::size_t row, std::size_t rows,
                           Run places) noexcept {
  const std::size_t from = places.begin / kPanelRows * kPanelRows;
  ProductJob job;
  job.panel = panels_.data() + from * key_width_;
  job.k_stride = kPanelRows;
  job.panel_stride = kPanelRows * key_width_;
  job.k = key_width_;
  job.columns = padded(places.end) - from;
  job.out_stride = kPiece;
  // As many rows of the product as elements of a key, each with two lines: those of 64 keys.
  if (in_place_.key_lines != nullptr) job.ahead = {in_place_.key_lines, 2 * kLine};
  const bool even = queries_.row_stride == queries_.heads * queries_.head_stride;
  job.x_stride = queries_.head_stride;
  job.rows = even ? rows * queries_.heads : queries_.heads;
  for (std::size_t r = row; r < row + rows; ++r) {
    job.x = queries_.first + group_ * queries_.group_stride + r * queries_.row_stride;
    job.out = weights_.data() + query_of(r) * kPiece + from;
    kernels.product(job);
    if (even) return;
    job.ahead = {};
  }
}

/// Turns the products of one row's queries into weights; what they do not see weighs 0.
void Pieces::soften(const KernelTable& kernels, const ScoreRule& rule, std::size_t row, Runs runs,
                    std::size_t start) noexcept {
  SoftenJob job;
  job.scale = rule.scale;
  job.softcap = rule.softcap;
  // Of place 0; whole numbers that f32 holds for any context below 2^24.
  job.distance = static_cast<float>(static_cast<std::int64_t>(start) -
                                    static_cast<std::int64_t>(rule.position + row));
  job.width = value_width_;
  if (runs.size() > 1 || runs.front() != Run{0, kPiece}) {
    visible_.fill(0);
    for (const Run& run : runs) {
      for (std::size_t j = run.begin; j < run.end; ++j) visible_[j] = 1;
    }
    job.visible = visible_.data();
  }
  for (std::size_t h = 0; h < queries_.heads; ++h) {
    const std::size_t q = query_of(row) + h;
    if (!rule.slopes.empty()) job.slope = rule.slopes[group_ * queries_.heads + h];
    job.weights = weights_.data() + q * kPiece;
    job.largest = part_largest_.data() + q;
    job.mass = part_mass_.data() + q * kPanelRows;
    job.sums = parts_.data() + q * value_width_;
    kernels.soften(job);
    if (!codes_.used) continue;
    codes_.kernels->round_weights({job.weights, job.visible, codes_.value_scales.data(),
                                   codes_.weights.data() + q * kPiece / 2,
                                   codes_.weight_scales.data() + q});
  }
}

/// parts += weights x values for rows that see the same run.
void Pieces::add_values(const KernelTable& kernels, std::size_t row, std::size_t rows,
                        Run run) noexcept {
  if (run.empty()) return;
  const std::size_t q = query_of(row);
  ProductJob job;
  const bool decoded = in_place_.values == nullptr;
  job.k_stride = decoded ? value_stride_ : in_place_.value_stride;
  if (decoded) {
    job.panel = (shared_ ? keys_.data() : values_.data()) + run.begin * value_stride_;
  } else {
    job.panel16 = in_place_.values + run.begin * in_place_.value_stride * kBytes16;
    job.ahead = ahead(in_place_.next_values, run.begin);
  }
  job.panel_stride = kPanelRows;
  job.k = run.end - run.begin;
  job.columns = value_width_;
  job.x = weights_.data() + q * kPiece + run.begin;
  job.x_stride = kPiece;
  job.rows = rows * queries_.heads;
  job.out = parts_.data() + q * value_width_;
  job.out_stride = value_width_;
  job.accumulate = true;
  (decoded ? kernels.product : kernels.product16[in_place_.format])(job);
}

void Pieces::merge(std::size_t q, float largest, float mass, const float* sums) noexcept {
  if (mass == 0.f) return;  // saw nothing of the span
  float* const own = sums_.data() + q * value_width_;
  if (mass_[q] == 0.f) {
    largest_[q] = largest;
    mass_[q] = mass;
    std::copy_n(sums, value_width_, own);
    return;
  }
  const float both = std::max(largest_[q], largest);
  const float old = std::exp(largest_[q] - both), fresh = std::exp(largest - both);
  for (std::size_t c = 0; c < value_width_; ++c) own[c] = own[c] * old + sums[c] * fresh;
  mass_[q] = mass_[q] * old + mass * fresh;
  largest_[q] = both;
}

void Pieces::save(std::size_t group, float* part) const noexcept {
  const std::size_t count = queries_.of_group(), first = group * count;
  std::copy_n(largest_.data() + first, count, part);
  std::copy_n(mass_.data() + first, count, part + count);
  std::copy_n(sums_.data() + first * value_width_, count * value_width_, part + 2 * count);
}

void Pieces::merge(std::size_t group, const float* part) noexcept {
  const std::size_t count = queries_.of_group(), first = group * count;
  for (std::size_t q = 0; q < count; ++q) {
    merge(first + q, part[q], part[count + q], part + 2 * count + q * value_width_);
  }
}

void Pieces::finish(std::size_t q, const float* sink, float* out) const noexcept {
  float scale = 1.f, mass = mass_[q];
  if (sink != nullptr) {
    const float largest = std::max(largest_[q], *sink);
    scale = std::exp(largest_[q] - largest);
    mass = mass * scale + std::exp(*sink - largest);
  }
  const float* const sums = sums_.data() + q * value_width_;
  for (std::size_t c = 0; c < value_dim_; ++c) out[c] = sums[c] * scale / mass;
}

std::size_t Pieces::bytes() const noexcept {
  return codes_.bytes() +
         sizeof(float) * (keys_.size() + panels_.size() + values_.size() + weights_.size() +
                          parts_.size() + part_mass_.size() + sums_.size() + 3 * mass_.size());
}

std::span<const std::uint32_t> read_list(const float* list, std::size_t limit, std::uint32_t end,
                                         std::vector<std::uint32_t>& out) noexcept {
  if (!(list[0] >= 1.f && list[0] <= static_cast<float>(limit))) return {};
  const auto count = static_cast<std::size_t>(list[0]);
  LEMMA_CHECK(count <= out.size());
  std::uint64_t next = 0;  // the least index that may follow
  for (std::size_t i = 0; i < count; ++i) {
    const float index = list[1 + i];
    if (!(index >= static_cast<float>(next) && index < static_cast<float>(end))) return {};
    out[i] = static_cast<std::uint32_t>(index);
    next = std::uint64_t{out[i]} + 1;
  }
  return {out.data(), count};
}

}  // namespace lemma::cpu
