// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/pieces.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"

namespace lemma::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

}  // namespace

Pieces::Pieces(std::size_t queries, std::size_t key_dim, std::size_t value_dim, bool shared)
    : key_width_(padded(key_dim)),
      value_width_(padded(value_dim)),
      value_dim_(value_dim),
      shared_(shared),
      keys_(kPiece * key_width_),
      values_(shared ? 0 : kPiece * value_width_),
      weights_(queries * kPiece),
      parts_(queries * value_width_),
      sums_(queries * value_width_) {
  LEMMA_CHECK(!shared || value_dim <= key_dim);
  for (auto* v : {&part_largest_, &part_mass_, &largest_, &mass_}) v->resize(queries);
}

void Pieces::begin(const Queries& queries) noexcept {
  queries_ = queries;
  const std::size_t count = queries.heads * queries.rows;
  LEMMA_CHECK(count <= mass_.size());
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
    for (std::size_t j = std::max(begin, start); j < std::min(end, start + kPiece); ++j) {
      decode(static_cast<std::uint32_t>(j), j - start);
    }
    const Run first = within(ranges.front(), start);
    bool same = !first.empty();  // all rows see the same part of the piece
    for (std::size_t i = 0; i < queries_.rows; ++i) {
      const Run run = within(ranges[i], start);
      same = same && run == first;
      if (run.empty()) {
        std::fill_n(part_mass_.data() + i * queries_.heads, queries_.heads, 0.f);
      } else {
        weigh(kernels, rule, i, {&run, 1}, start);
      }
    }
    if (same) {
      add_values(kernels, 0, queries_.rows * queries_.heads, {&first, 1});
    } else {
      for (std::size_t i = 0; i < queries_.rows; ++i) {
        const Run run = within(ranges[i], start);
        if (!run.empty()) add_values(kernels, i * queries_.heads, queries_.heads, {&run, 1});
      }
    }
    merge(kernels);
  }
}

void Pieces::attend(const KernelTable& kernels, const ScoreRule& rule,
                    std::span<const std::uint32_t> list, Decode decode) noexcept {
  LEMMA_CHECK(queries_.rows == 1);
  std::array<Run, kPiece / 2> runs;  // two runs of a piece have a row between them
  for (std::size_t n = 0; n < list.size();) {
    const std::size_t start = list[n] / kPiece * kPiece;
    std::size_t count = 0;
    for (; n < list.size() && list[n] < start + kPiece; ++n) {
      const std::size_t place = list[n] - start;
      decode(list[n], place);
      if (count > 0 && runs[count - 1].end == place) {
        ++runs[count - 1].end;
      } else {
        runs[count++] = {place, place + 1};
      }
    }
    weigh(kernels, rule, 0, {runs.data(), count}, start);
    add_values(kernels, 0, queries_.heads, {runs.data(), count});
    merge(kernels);
  }
}

void Pieces::weigh(const KernelTable& kernels, const ScoreRule& rule, std::size_t row, Runs runs,
                   std::size_t start) noexcept {
  for (std::size_t h = 0; h < queries_.heads; ++h) weigh_query(kernels, rule, row, h, runs, start);
}

/// Turns the piece's scores of one query into weights; what it does not see weighs 0.
void Pieces::weigh_query(const KernelTable& kernels, const ScoreRule& rule, std::size_t row,
                         std::size_t head, Runs runs, std::size_t start) noexcept {
  const std::size_t q = row * queries_.heads + head;
  float* const weights = weights_.data() + q * kPiece;
  const std::size_t from = runs.front().begin / kPanelRows * kPanelRows;
  kernels.scores(queries_.first + row * queries_.row_stride + head * queries_.head_stride,
                 keys_.data() + from * key_width_, key_width_, runs.back().end - from, key_width_,
                 weights + from);
  std::size_t done = 0;
  for (const Run& run : runs) {
    std::fill(weights + done, weights + run.begin, kMinusInfinity);
    done = run.end;
    for (std::size_t j = run.begin; j < run.end; ++j) weights[j] *= rule.scale;
    if (rule.softcap != 0.f) {
      kernels.softcap(weights + run.begin, run.end - run.begin, rule.softcap);
    }
    if (!rule.slopes.empty()) {
      const auto distance = static_cast<std::int64_t>(start) -
                            static_cast<std::int64_t>(rule.position + row);  // of place 0
      for (std::size_t j = run.begin; j < run.end; ++j) {
        weights[j] +=
            rule.slopes[head] * static_cast<float>(distance + static_cast<std::int64_t>(j));
      }
    }
  }
  std::fill(weights + done, weights + kPiece, kMinusInfinity);
  part_largest_[q] = kernels.largest(weights);
  part_mass_[q] = kernels.soften(weights, part_largest_[q]);
}

/// parts = weights x values for `count` queries that see the same rows.
void Pieces::add_values(const KernelTable& kernels, std::size_t q, std::size_t count,
                        Runs runs) noexcept {
  const std::size_t stride = shared_ ? key_width_ : value_width_;
  const float* const values = shared_ ? keys_.data() : values_.data();
  ProductJob job;
  job.k_stride = stride;
  job.panel_stride = kPanelRows;
  job.columns = value_width_;
  job.x_stride = kPiece;
  job.rows = count;
  job.out = parts_.data() + q * value_width_;
  job.out_stride = value_width_;
  for (const Run& run : runs) {
    job.panel = values + run.begin * stride;
    job.k = run.end - run.begin;
    job.x = weights_.data() + q * kPiece + run.begin;
    kernels.product(job);
    job.accumulate = true;
  }
}

void Pieces::merge(const KernelTable& kernels) noexcept {
  for (std::size_t q = 0; q < queries_.rows * queries_.heads; ++q) {
    if (part_mass_[q] == 0.f) continue;  // saw nothing of the piece
    const float largest = std::max(largest_[q], part_largest_[q]);
    const float old = std::exp(largest_[q] - largest);
    const float fresh = std::exp(part_largest_[q] - largest);
    kernels.merge(sums_.data() + q * value_width_, old, parts_.data() + q * value_width_, fresh,
                  value_width_);
    mass_[q] = mass_[q] * old + part_mass_[q] * fresh;
    largest_[q] = largest;
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
  return sizeof(float) * (keys_.size() + values_.size() + weights_.size() + parts_.size() +
                          sums_.size() + 4 * mass_.size());
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
