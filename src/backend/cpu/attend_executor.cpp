// SPDX-License-Identifier: Apache-2.0
// Attention over key-value heads. A thread takes one KV head of up to 8 consecutive rows of a
// segment, so that keys and values are decoded once for all their query heads; where each row has
// its own list of keys, one KV head of one row.
#include <algorithm>
#include <array>
#include <vector>

#include "algorithm/attention/gqa.hpp"
#include "backend/cpu/executor.hpp"
#include "backend/cpu/pieces.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// One thread's memory.
struct Scratch {
  std::vector<float> queries;  ///< [8 rows x query heads of a KV head, d padded]
  std::vector<std::uint32_t> list;
  Pieces pieces;
};

class AttendExecutor final : public Executor {
 public:
  AttendExecutor(const backend::Attend& op, const Context& context)
      : op_(op),
        spec_(op.spec),
        heads_(spec_.query_heads / spec_.kv_heads),
        list_limit_(op.selection ? op.selection.width / spec_.kv_heads - 1 : 0),
        sinks_(context.vector(op.sinks)) {
    LEMMA_CHECK(op.query.width == spec_.query_heads * spec_.head_dim);
    LEMMA_CHECK(op.out.width == spec_.query_heads * spec_.value_dim);
    LEMMA_CHECK(!spec_.sinks || sinks_.size() == spec_.query_heads);
    LEMMA_CHECK(!op.selection || op.selection.width % spec_.kv_heads == 0);
    if (spec_.alibi_max_bias > 0.f) {
      slopes_ = algorithm::alibi_slopes(spec_.query_heads, spec_.alibi_max_bias);
    }
    const std::size_t queries = Context::kRowBlock * heads_;
    for (int t = 0; t < context.pool.threads(); ++t) {
      scratch_.push_back({std::vector<float>(queries * padded(spec_.head_dim)),
                          std::vector<std::uint32_t>(list_limit_),
                          Pieces(queries, spec_.head_dim, spec_.value_dim, false)});
    }
  }

  void run(Context& context) noexcept override {
    const std::size_t kv_heads = spec_.kv_heads, rows = context.rows();
    if (op_.selection) {
      const std::size_t work = rows * list_limit_ * spec_.query_heads * spec_.head_dim * 2;
      context.each(rows * kv_heads, work, [&](std::size_t item, int thread) {
        attend_list(context, item / kv_heads, item % kv_heads,
                    scratch_[static_cast<std::size_t>(thread)]);
      });
      return context.settle(op_.selection);
    }
    const std::span<const RowBlock> blocks = context.row_blocks();
    std::size_t work = 0;
    for (const backend::Segment& segment : context.step().segments) {
      work += std::size_t{segment.rows} * (segment.past + segment.rows);
    }
    work *= spec_.query_heads * (spec_.head_dim + spec_.value_dim);
    context.each(blocks.size() * kv_heads, work, [&](std::size_t item, int thread) {
      attend_ranges(context, blocks[item / kv_heads], item % kv_heads,
                    scratch_[static_cast<std::size_t>(thread)]);
    });
  }

  std::size_t scratch_bytes() const noexcept override {
    const Scratch& s = scratch_.front();
    return scratch_.size() * (s.queries.size() * sizeof(float) +
                              s.list.size() * sizeof(std::uint32_t) + s.pieces.bytes());
  }

 private:
  /// Reads a key and a value of one KV head as the state holds them.
  auto decoder(Context& context, const backend::Segment& segment, std::size_t kv_head,
               Scratch& scratch) const noexcept {
    return [this, &context, &segment, kv_head, &scratch](std::uint32_t j, std::size_t place) {
      context.decode_row(op_.key, *segment.sequence, j, kv_head * spec_.head_dim, spec_.head_dim,
                         scratch.pieces.key(place));
      context.decode_row(op_.value, *segment.sequence, j, kv_head * spec_.value_dim,
                         spec_.value_dim, scratch.pieces.value(place));
    };
  }

  void attend_ranges(Context& context, const RowBlock& block, std::size_t kv_head,
                     Scratch& scratch) noexcept {
    const backend::Segment& segment = context.step().segments[block.segment];
    std::array<algorithm::VisibleRange, Context::kRowBlock> ranges;
    for (std::uint32_t i = 0; i < block.rows; ++i) {
      ranges[i] = algorithm::visible_range(segment.past + block.first + i, spec_.window,
                                           spec_.causal ? 0 : segment.past + segment.rows);
    }
    const std::size_t first = segment.first_row + block.first;
    begin(context, first, block.rows, kv_head, scratch);
    scratch.pieces.attend(context.kernels, rule(context, first, kv_head),
                          {ranges.data(), block.rows}, decoder(context, segment, kv_head, scratch));
    finish(context, first, block.rows, kv_head, scratch);
  }

  void attend_list(Context& context, std::size_t row, std::size_t kv_head,
                   Scratch& scratch) noexcept {
    const backend::Segment& segment = context.segment_of(row);
    const std::uint32_t position = context.position_of(row);
    const std::span<const std::uint32_t> list =
        read_list(context.arena.row(op_.selection, row) + kv_head * (1 + list_limit_), list_limit_,
                  position + 1, scratch.list);
    begin(context, row, 1, kv_head, scratch);
    if (list.empty()) {
      context.mark(row);
    } else {
      scratch.pieces.attend(context.kernels, rule(context, row, kv_head), list,
                            decoder(context, segment, kv_head, scratch));
    }
    finish(context, row, 1, kv_head, scratch);
  }

  ScoreRule rule(const Context& context, std::size_t row, std::size_t kv_head) const noexcept {
    ScoreRule rule{spec_.scale, spec_.softcap, {}, context.position_of(row)};
    if (!slopes_.empty()) rule.slopes = {slopes_.data() + kv_head * heads_, heads_};
    return rule;
  }

  /// The queries of one KV head, times the temperature of their position, zero-padded.
  void begin(const Context& context, std::size_t first, std::size_t rows, std::size_t kv_head,
             Scratch& scratch) const noexcept {
    const std::size_t width = scratch.pieces.key_width();
    for (std::size_t i = 0; i < rows; ++i) {
      const float temperature = algorithm::query_temperature(spec_, context.position_of(first + i));
      const float* const row = context.arena.row(op_.query, first + i);
      for (std::size_t h = 0; h < heads_; ++h) {
        const float* const in = row + (kv_head * heads_ + h) * spec_.head_dim;
        float* const out = scratch.queries.data() + (i * heads_ + h) * width;
        for (std::size_t c = 0; c < spec_.head_dim; ++c) out[c] = in[c] * temperature;
      }
    }
    scratch.pieces.begin({.first = scratch.queries.data(),
                          .head_stride = width,
                          .row_stride = heads_ * width,
                          .heads = heads_,
                          .rows = rows});
  }

  void finish(Context& context, std::size_t first, std::size_t rows, std::size_t kv_head,
              const Scratch& scratch) const noexcept {
    for (std::size_t i = 0; i < rows; ++i) {
      float* const out = context.arena.row(op_.out, first + i);
      for (std::size_t h = 0; h < heads_; ++h) {
        const std::size_t head = kv_head * heads_ + h;
        scratch.pieces.finish(i * heads_ + h, spec_.sinks ? &sinks_[head] : nullptr,
                              out + head * spec_.value_dim);
      }
    }
  }

  backend::Attend op_;
  algorithm::GqaSpec spec_;
  std::size_t heads_;       ///< query heads of a KV head
  std::size_t list_limit_;  ///< keys of one list
  std::span<const float> sinks_;
  std::vector<float> slopes_;     ///< ALiBi's, or none
  std::vector<Scratch> scratch_;  ///< by thread
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Attend& op, const Context& context) {
  return std::make_unique<AttendExecutor>(op, context);
}

}  // namespace lemma::cpu
