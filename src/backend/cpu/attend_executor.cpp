// SPDX-License-Identifier: Apache-2.0
// Causal attention. A thread takes one KV head of up to 8 consecutive rows of a segment, so that
// keys and values are decoded once for all their query heads.
//
// The history is cut at absolute multiples of 64 positions, whatever the page size, the phase or
// the window; only the first and the last piece of a row's range are partial. A piece gives
// (largest score, sum of weights, weighted values); pieces are merged in ascending order:
//
//   M' = max(M, m);  o = o e^(M - M') + p e^(m - M');  l = l e^(M - M') + s e^(m - M')
//
// Which rows share a block never shows: a score depends on its query and key alone, and a row's
// weighted sum takes its own range in ascending order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "algorithm/attention/gqa.hpp"
#include "backend/cpu/executor.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t kPad = 16;  ///< rows of heads are padded to whole vectors of any width

constexpr std::size_t padded(std::size_t n) noexcept {
  return (n + kPad - 1) / kPad * kPad;
}

/// Half-open range of keys within a piece.
struct PieceRange {
  std::size_t begin = 0, end = 0;
  friend bool operator==(const PieceRange&, const PieceRange&) = default;
  bool empty() const noexcept { return begin >= end; }
};

/// One thread's memory. Q = 8 rows x query heads of a KV head; widths padded.
struct Scratch {
  std::vector<float> queries;  ///< [Q, d]
  std::vector<float> keys;     ///< [64, d]
  std::vector<float> values;   ///< [64, d_v]
  std::vector<float> weights;  ///< [Q, 64]: scores, then their exponentials
  std::vector<float> parts;    ///< [Q, d_v]: the piece's weighted values
  std::vector<float> sums;     ///< [Q, d_v]: merged so far
  std::vector<float> part_largest, part_mass, largest, mass;  ///< [Q]
};

class AttendExecutor final : public Executor {
 public:
  AttendExecutor(const backend::Attend& op, const Context& context)
      : op_(op),
        spec_(op.spec),
        heads_(spec_.query_heads / spec_.kv_heads),
        key_width_(padded(spec_.head_dim)),
        value_width_(padded(spec_.value_dim)),
        sinks_(context.vector(op.sinks)) {
    LEMMA_CHECK(op.query.width == spec_.query_heads * spec_.head_dim);
    LEMMA_CHECK(op.out.width == spec_.query_heads * spec_.value_dim);
    LEMMA_CHECK(!spec_.sinks || sinks_.size() == spec_.query_heads);
    if (spec_.alibi_max_bias > 0.f) {
      slopes_ = algorithm::alibi_slopes(spec_.query_heads, spec_.alibi_max_bias);
    }
    const std::size_t queries = Context::kRowBlock * heads_;
    scratch_.resize(static_cast<std::size_t>(context.pool.threads()));
    for (Scratch& s : scratch_) {
      s.queries.resize(queries * key_width_);
      s.keys.resize(kPiece * key_width_);
      s.values.resize(kPiece * value_width_);
      s.weights.resize(queries * kPiece);
      s.parts.resize(queries * value_width_);
      s.sums.resize(queries * value_width_);
      for (auto* v : {&s.part_largest, &s.part_mass, &s.largest, &s.mass}) v->resize(queries);
    }
  }

  void run(Context& context) noexcept override {
    const std::span<const RowBlock> blocks = context.row_blocks();
    std::size_t work = 0;
    for (const backend::Segment& segment : context.step().segments) {
      work += std::size_t{segment.rows} * (segment.past + segment.rows);
    }
    work *= spec_.query_heads * (spec_.head_dim + spec_.value_dim);
    context.each(blocks.size() * spec_.kv_heads, work, [&](std::size_t item, int thread) {
      attend(context, blocks[item / spec_.kv_heads], item % spec_.kv_heads,
             scratch_[static_cast<std::size_t>(thread)]);
    });
  }

  std::size_t scratch_bytes() const noexcept override {
    const Scratch& s = scratch_.front();
    return scratch_.size() * sizeof(float) *
           (s.queries.size() + s.keys.size() + s.values.size() + s.weights.size() + s.parts.size() +
            s.sums.size() + 4 * s.mass.size());
  }

 private:
  /// What row `i` of the block sees.
  algorithm::VisibleRange range_of(const backend::Segment& segment, const RowBlock& block,
                                   std::size_t i) const noexcept {
    return algorithm::visible_range(segment.past + block.first + static_cast<std::uint32_t>(i),
                                    spec_.window);
  }

  void attend(Context& context, const RowBlock& block, std::size_t kv_head,
              Scratch& scratch) noexcept {
    const backend::Segment& segment = context.step().segments[block.segment];
    load_queries(context, segment, block, kv_head, scratch);
    const std::size_t queries = block.rows * heads_;
    std::fill_n(scratch.largest.begin(), queries, kMinusInfinity);
    std::fill_n(scratch.mass.begin(), queries, 0.f);
    std::fill_n(scratch.sums.begin(), queries * value_width_, 0.f);

    // Ranges begin and end in the order of the rows.
    const std::size_t begin = range_of(segment, block, 0).begin;
    const std::size_t end = range_of(segment, block, block.rows - 1).end;
    for (std::size_t start = begin / kPiece * kPiece; start < end; start += kPiece) {
      const PieceRange all{std::max(begin, start) - start, std::min(end, start + kPiece) - start};
      decode(context, *segment.sequence, kv_head, start, all, scratch);
      attend_piece(context.kernels, segment, block, kv_head, start, scratch);
      for (std::size_t q = 0; q < queries; ++q) merge(context.kernels, q, scratch);
    }
    finish(context, segment, block, kv_head, scratch);
  }

  /// The block's queries of one KV head, times the temperature of their position, zero-padded.
  void load_queries(const Context& context, const backend::Segment& segment, const RowBlock& block,
                    std::size_t kv_head, Scratch& scratch) const noexcept {
    for (std::size_t i = 0; i < block.rows; ++i) {
      const std::uint32_t position = segment.past + block.first + static_cast<std::uint32_t>(i);
      const float temperature = algorithm::query_temperature(spec_, position);
      const float* const row = context.arena.row(op_.query, segment.first_row + block.first + i);
      for (std::size_t h = 0; h < heads_; ++h) {
        const float* const in = row + (kv_head * heads_ + h) * spec_.head_dim;
        float* const out = scratch.queries.data() + (i * heads_ + h) * key_width_;
        for (std::size_t c = 0; c < spec_.head_dim; ++c) out[c] = in[c] * temperature;
      }
    }
  }

  void decode(Context& context, const state::Sequence& sequence, std::size_t kv_head,
              std::size_t start, PieceRange range, Scratch& scratch) const noexcept {
    for (std::size_t j = range.begin; j < range.end; ++j) {
      decode_row(context, op_.key, sequence, start + j, kv_head, spec_.head_dim,
                 scratch.keys.data() + j * key_width_);
      decode_row(context, op_.value, sequence, start + j, kv_head, spec_.value_dim,
                 scratch.values.data() + j * value_width_);
    }
  }

  static void decode_row(Context& context, backend::SlotId slot, const state::Sequence& sequence,
                         std::size_t position, std::size_t kv_head, std::size_t dim,
                         float* out) noexcept {
    const state::SlotPlace& place = context.state.layout().slots()[static_cast<std::size_t>(slot)];
    const std::byte* const row =
        context.state.row(slot, sequence, static_cast<std::uint32_t>(position));
    const std::size_t begin = kv_head * dim, group = place.slot.group;
    switch (context.state.layout().options().format) {
      case algorithm::RowFormat::kF32:
        std::memcpy(out, row + begin * sizeof(float), dim * sizeof(float));
        return;
      case algorithm::RowFormat::kF16:
        return context.kernels.decode_f16(row + begin * 2, dim, out);
      case algorithm::RowFormat::kBF16:
        return context.kernels.decode_bf16(row + begin * 2, dim, out);
      case algorithm::RowFormat::kQ8:
        return context.kernels.decode_q8(row + begin, row + place.slot.width + begin / group * 2,
                                         group, dim, out);
    }
  }

  /// Scores, weights and weighted values of every query of the block over one piece.
  void attend_piece(const KernelTable& kernels, const backend::Segment& segment,
                    const RowBlock& block, std::size_t kv_head, std::size_t start,
                    Scratch& scratch) const noexcept {
    bool same = true;  // all rows see the same part of the piece
    const PieceRange first = within(range_of(segment, block, 0), start);
    for (std::size_t i = 0; i < block.rows; ++i) {
      const PieceRange range = within(range_of(segment, block, i), start);
      same = same && range == first;
      for (std::size_t h = 0; h < heads_; ++h) {
        const std::size_t q = i * heads_ + h;
        if (range.empty()) {
          scratch.part_mass[q] = 0.f;
          continue;
        }
        const std::size_t position = std::size_t{segment.past} + block.first + i;
        weigh(kernels, q, kv_head * heads_ + h, range, start, position, scratch);
      }
    }
    if (same) return add_values(kernels, 0, block.rows * heads_, first, scratch);
    for (std::size_t i = 0; i < block.rows; ++i) {
      const PieceRange range = within(range_of(segment, block, i), start);
      if (!range.empty()) add_values(kernels, i * heads_, heads_, range, scratch);
    }
  }

  static PieceRange within(algorithm::VisibleRange range, std::size_t start) noexcept {
    const std::size_t begin = std::max<std::size_t>(range.begin, start);
    const std::size_t end = std::min<std::size_t>(range.end, start + kPiece);
    if (begin >= end) return {};
    return {begin - start, end - start};
  }

  /// Turns the piece's scores of query `q` into weights; what the row does not see weighs 0.
  void weigh(const KernelTable& kernels, std::size_t q, std::size_t head, PieceRange range,
             std::size_t start, std::size_t position, Scratch& scratch) const noexcept {
    float* const weights = scratch.weights.data() + q * kPiece;
    const std::size_t from = range.begin / kPad * kPad;
    kernels.scores(scratch.queries.data() + q * key_width_, scratch.keys.data() + from * key_width_,
                   key_width_, range.end - from, key_width_, weights + from);
    std::fill(weights, weights + range.begin, kMinusInfinity);
    std::fill(weights + range.end, weights + kPiece, kMinusInfinity);
    for (std::size_t j = range.begin; j < range.end; ++j) weights[j] *= spec_.scale;
    if (spec_.softcap != 0.f) {
      kernels.softcap(weights + range.begin, range.end - range.begin, spec_.softcap);
    }
    if (!slopes_.empty()) {
      for (std::size_t j = range.begin; j < range.end; ++j) {
        weights[j] += slopes_[head] * -static_cast<float>(position - (start + j));
      }
    }
    scratch.part_largest[q] = kernels.largest(weights);
    scratch.part_mass[q] = kernels.soften(weights, scratch.part_largest[q]);
  }

  /// parts = weights x values for `count` queries that see the same range.
  void add_values(const KernelTable& kernels, std::size_t q, std::size_t count, PieceRange range,
                  Scratch& scratch) const noexcept {
    ProductJob job;
    job.panel = scratch.values.data() + range.begin * value_width_;
    job.k_stride = value_width_;
    job.panel_stride = kPanelRows;
    job.k = range.end - range.begin;
    job.columns = value_width_;
    job.x = scratch.weights.data() + q * kPiece + range.begin;
    job.x_stride = kPiece;
    job.rows = count;
    job.out = scratch.parts.data() + q * value_width_;
    job.out_stride = value_width_;
    kernels.product(job);
  }

  void merge(const KernelTable& kernels, std::size_t q, Scratch& scratch) const noexcept {
    if (scratch.part_mass[q] == 0.f) return;  // saw nothing of the piece
    const float largest = std::max(scratch.largest[q], scratch.part_largest[q]);
    const float old = std::exp(scratch.largest[q] - largest);
    const float fresh = std::exp(scratch.part_largest[q] - largest);
    kernels.merge(scratch.sums.data() + q * value_width_, old,
                  scratch.parts.data() + q * value_width_, fresh, value_width_);
    scratch.mass[q] = scratch.mass[q] * old + scratch.part_mass[q] * fresh;
    scratch.largest[q] = largest;
  }

  /// Lets the sink join, divides by the mass and writes the heads out.
  void finish(Context& context, const backend::Segment& segment, const RowBlock& block,
              std::size_t kv_head, Scratch& scratch) const noexcept {
    for (std::size_t i = 0; i < block.rows; ++i) {
      float* const row = context.arena.row(op_.out, segment.first_row + block.first + i);
      for (std::size_t h = 0; h < heads_; ++h) {
        const std::size_t q = i * heads_ + h, head = kv_head * heads_ + h;
        const float* const sums = scratch.sums.data() + q * value_width_;
        float scale = 1.f, mass = scratch.mass[q];
        if (spec_.sinks) {
          const float largest = std::max(scratch.largest[q], sinks_[head]);
          scale = std::exp(scratch.largest[q] - largest);
          mass = mass * scale + std::exp(sinks_[head] - largest);
        }
        float* const out = row + head * spec_.value_dim;
        for (std::size_t c = 0; c < spec_.value_dim; ++c) out[c] = sums[c] * scale / mass;
      }
    }
  }

  backend::Attend op_;
  algorithm::GqaSpec spec_;
  std::size_t heads_;                    ///< query heads of a KV head
  std::size_t key_width_, value_width_;  ///< padded
  std::span<const float> sinks_;
  std::vector<float> slopes_;     ///< ALiBi's, or none
  std::vector<Scratch> scratch_;  ///< by thread
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Attend& op, const Context& context) {
  return std::make_unique<AttendExecutor>(op, context);
}

}  // namespace lemma::cpu
