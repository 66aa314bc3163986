// SPDX-License-Identifier: Apache-2.0
// Attention over key-value heads. A thread takes one KV head of a block of consecutive rows of a
// segment, so that keys and values are decoded once for all their query heads; where each row has
// its own list of keys, one KV head of one row. Where that leaves threads without work, as in the
// decoding of one long sequence, they share out the history's spans of 512 positions, whose results
// are then merged in ascending order: the same numbers.
#include <algorithm>
#include <array>
#include <vector>

#include "algorithm/attention/gqa.hpp"
#include "backend/cpu/executor.hpp"
#include "backend/cpu/pieces.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// Queries of a block: 8 tiles of the widest product, against which the decoding of their keys and
/// values counts little.
constexpr std::size_t kBlockQueries = 64;
/// A block of at most so many queries reads the values where they lie; more read them so often that
/// decoding them once is cheaper.
constexpr std::size_t kInPlaceQueries = 8;
/// Fewer items than this for each thread are split by spans.
constexpr std::size_t kItemsPerThread = 4;
/// Spans that are computed before they are merged: 16,384 positions.
constexpr std::size_t kSpansAtOnce = 32;

std::size_t block_rows(std::size_t heads) noexcept {
  return std::max<std::size_t>(1, kBlockQueries / heads);
}

/// Memory of an attention, shared by the layers. Shape: query heads of a KV head, key width, value
/// width, list limit.
struct Scratch {
  struct Thread {
    std::vector<float> queries;  ///< [queries of a block, d padded]
    std::vector<std::uint32_t> list;
    Pieces pieces;
  };

  Scratch(const Context& context, std::span<const std::size_t> shape) {
    const std::size_t queries = block_rows(shape[0]) * shape[0];
    for (int t = 0; t < context.pool.threads(); ++t) {
      threads.push_back({std::vector<float>(queries * padded(shape[1])),
                         std::vector<std::uint32_t>(shape[3]),
                         Pieces(queries, shape[1], shape[2], false)});
    }
    blocks.resize(context.max_rows);
    part_floats = threads.front().pieces.part_floats(queries);
    parts.resize(kItemsPerThread * threads.size() * (kSpansAtOnce + 1) * part_floats);
  }
  std::size_t bytes() const noexcept {
    const Thread& t = threads.front();
    return threads.size() * (t.queries.size() * sizeof(float) +
                             t.list.size() * sizeof(std::uint32_t) + t.pieces.bytes()) +
           blocks.size() * sizeof(RowBlock) + parts.size() * sizeof(float);
  }

  std::vector<Thread> threads;
  std::vector<RowBlock> blocks;  ///< of the running step
  std::size_t part_floats = 0;
  std::vector<float> parts;  ///< [items, spans at once + 1, part_floats]
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
    scratch_ = &context.shared<Scratch>({heads_, spec_.head_dim, spec_.value_dim, list_limit_});
    in_place_ = reads_in_place(context);
  }

  void run(Context& context) noexcept override {
    const std::size_t kv_heads = spec_.kv_heads, rows = context.rows();
    if (op_.selection) {
      const std::size_t work = rows * list_limit_ * spec_.query_heads * spec_.head_dim * 2;
      context.each(rows * kv_heads, work, [&](std::size_t item, int thread) {
        attend_list(context, item / kv_heads, item % kv_heads,
                    scratch_->threads[static_cast<std::size_t>(thread)]);
      });
      return context.settle(op_.selection);
    }
    const std::size_t count =
        cut_rows(context.step(), static_cast<std::uint32_t>(block_rows(heads_)), scratch_->blocks);
    const std::span<const RowBlock> blocks(scratch_->blocks.data(), count);
    std::size_t work = 0, longest = 0;
    for (const backend::Segment& segment : context.step().segments) {
      const std::size_t end = segment.past + segment.rows;
      work += segment.rows * end;
      longest =
          std::max(longest, spec_.window == 0 ? end : std::min<std::size_t>(end, spec_.window));
    }
    work *= spec_.query_heads * (spec_.head_dim + spec_.value_dim);
    const std::size_t items = count * kv_heads;
    if (longest > kSpan && items < kItemsPerThread * scratch_->threads.size()) {
      return attend_by_spans(context, blocks, work);
    }
    context.each(items, work, [&](std::size_t item, int thread) {
      const std::size_t i = items - 1 - item;  // the longest histories first
      const RowBlock& block = blocks[i / kv_heads];
      Scratch::Thread& own = scratch_->threads[static_cast<std::size_t>(thread)];
      begin(context, block, i % kv_heads, own);
      attend(context, block, i % kv_heads, {0, ~std::uint32_t{0}}, own);
      finish(context, block, i % kv_heads, own);
    });
  }

 private:
  using Thread = Scratch::Thread;

  /// Reads keys and values of one KV head as the state holds them, where they lie if kernels can.
  auto decoder(Context& context, const backend::Segment& segment, std::size_t kv_head,
               Pieces& pieces, std::size_t queries) const noexcept {
    return [this, &context, &segment, kv_head, &pieces, queries](
               std::uint32_t first, std::size_t count, std::size_t place) {
      const std::size_t key = kv_head * spec_.head_dim, value = kv_head * spec_.value_dim;
      Pieces::InPlace rows;
      if (in_place_) {
        const auto at = [&](const state::SlotPlace& slot, backend::SlotId id, std::size_t begin) {
          return context.state.row(id, *segment.sequence, first) + 2 * begin -
                 place * slot.row_bytes;
        };
        const auto& slots = context.state.layout().slots();
        const state::SlotPlace& keys = slots[static_cast<std::size_t>(op_.key)];
        const state::SlotPlace& values = slots[static_cast<std::size_t>(op_.value)];
        rows.format = keys.format == algorithm::RowFormat::kF16 ? 0 : 1;
        rows.keys = at(keys, op_.key, key);
        rows.key_stride = keys.row_bytes / 2;
        rows.value_stride = values.row_bytes / 2;
        if (queries <= kInPlaceQueries) rows.values = at(values, op_.value, value);
        const std::uint32_t end = segment.past + segment.rows, start = first - std::uint32_t(place);
        const std::uint32_t next = start + std::uint32_t{kPiece} < end ? start + kPiece : start;
        rows.next_keys = context.state.row(op_.key, *segment.sequence, next) + 2 * key;
        rows.next_values = context.state.row(op_.value, *segment.sequence, next) + 2 * value;
      } else {
        context.decode_rows(op_.key, *segment.sequence, first, count, key, spec_.head_dim,
                            pieces.key(place), pieces.key_stride());
      }
      if (rows.values == nullptr) {
        context.decode_rows(op_.value, *segment.sequence, first, count, value, spec_.value_dim,
                            pieces.value(place), pieces.value_stride());
      }
      return rows;
    };
  }

  /// Whether pieces of both slots lie in one page each, in rows of 16-bit elements and whole
  /// vectors. (Lists name rows here and there, which are decoded.)
  bool reads_in_place(const Context& context) const noexcept {
    const auto fits = [&](backend::SlotId id, std::size_t width) {
      const state::SlotPlace& place = context.state.layout().slots()[static_cast<std::size_t>(id)];
      return (place.format == algorithm::RowFormat::kF16 ||
              place.format == algorithm::RowFormat::kBF16) &&
             place.row_bytes % 2 == 0 && width % kPanelRows == 0;
    };
    const auto& slots = context.state.layout().slots();
    return !op_.selection && context.state.layout().options().page_size % kPiece == 0 &&
           fits(op_.key, spec_.head_dim) && fits(op_.value, spec_.value_dim) &&
           slots[static_cast<std::size_t>(op_.key)].format ==
               slots[static_cast<std::size_t>(op_.value)].format;
  }

  /// Attends to what the block's rows see within `limits`.
  void attend(Context& context, const RowBlock& block, std::size_t kv_head,
              algorithm::VisibleRange limits, Thread& own) const noexcept {
    const backend::Segment& segment = context.step().segments[block.segment];
    std::array<algorithm::VisibleRange, kBlockQueries> ranges;
    for (std::uint32_t i = 0; i < block.rows; ++i) {
      const algorithm::VisibleRange range =
          algorithm::visible_range(segment.past + block.first + i, spec_.window,
                                   spec_.causal ? 0 : segment.past + segment.rows);
      ranges[i] = {std::clamp(range.begin, limits.begin, limits.end),
                   std::clamp(range.end, limits.begin, limits.end)};
    }
    own.pieces.attend(context.kernels, rule(context, first_row(context, block), kv_head),
                      {ranges.data(), block.rows},
                      decoder(context, segment, kv_head, own.pieces, block.rows * heads_));
  }

  /// The spans of all blocks and KV heads as items of their own, as many as the memory for their
  /// results holds, and then their merging; until the longest history ends.
  void attend_by_spans(Context& context, std::span<const RowBlock> blocks,
                       std::size_t work) noexcept {
    const std::size_t kv_heads = spec_.kv_heads, items = blocks.size() * kv_heads;
    std::size_t first = ~std::size_t{0}, last = 0;  // spans that any row sees
    for (const RowBlock& block : blocks) {
      const backend::Segment& segment = context.step().segments[block.segment];
      const std::uint32_t end = segment.past + segment.rows;
      const auto range = algorithm::visible_range(segment.past + block.first, spec_.window,
                                                  spec_.causal ? 0 : end);
      first = std::min<std::size_t>(first, range.begin / kSpan);
      last = std::max<std::size_t>(last, (end - 1) / kSpan + 1);
    }
    for (std::size_t from = first; from < last; from += kSpansAtOnce) {
      const std::size_t spans = std::min(kSpansAtOnce, last - from);
      context.each(items * spans, work, [&](std::size_t i, int thread) {
        // The KV heads of a span follow each other: their rows are neighbours in memory.
        const std::size_t item = i % items, span = i / items;
        const RowBlock& block = blocks[item / kv_heads];
        Thread& own = scratch_->threads[static_cast<std::size_t>(thread)];
        const auto start = static_cast<std::uint32_t>((from + span) * kSpan);
        begin(context, block, item % kv_heads, own);
        attend(context, block, item % kv_heads, {start, start + std::uint32_t{kSpan}}, own);
        own.pieces.save(part(item, span));
      });
      context.each(items, from == first ? work : 0, [&](std::size_t item, int thread) {
        const RowBlock& block = blocks[item / kv_heads];
        Thread& own = scratch_->threads[static_cast<std::size_t>(thread)];
        begin(context, block, item % kv_heads, own);
        if (from > first) own.pieces.merge(total(item));
        for (std::size_t span = 0; span < spans; ++span) own.pieces.merge(part(item, span));
        if (from + spans < last) return own.pieces.save(total(item));
        finish(context, block, item % kv_heads, own);
      });
    }
  }
  float* part(std::size_t item, std::size_t span) noexcept {
    return scratch_->parts.data() + (item * (kSpansAtOnce + 1) + span) * scratch_->part_floats;
  }
  /// What the spans before those under way gave.
  float* total(std::size_t item) noexcept { return part(item, kSpansAtOnce); }

  void attend_list(Context& context, std::size_t row, std::size_t kv_head, Thread& own) noexcept {
    const backend::Segment& segment = context.segment_of(row);
    const std::uint32_t position = context.position_of(row);
    const std::span<const std::uint32_t> list =
        read_list(context.arena.row(op_.selection, row) + kv_head * (1 + list_limit_), list_limit_,
                  position + 1, own.list);
    begin(context, row, 1, kv_head, own);
    if (list.empty()) {
      context.mark(row);
    } else {
      own.pieces.attend(context.kernels, rule(context, row, kv_head), list,
                        decoder(context, segment, kv_head, own.pieces, heads_));
    }
    finish(context, row, 1, kv_head, own);
  }

  ScoreRule rule(const Context& context, std::size_t row, std::size_t kv_head) const noexcept {
    ScoreRule rule{spec_.scale, spec_.softcap, {}, context.position_of(row)};
    if (!slopes_.empty()) rule.slopes = {slopes_.data() + kv_head * heads_, heads_};
    return rule;
  }

  /// The queries of one KV head, times the temperature of their position, zero-padded.
  void begin(const Context& context, std::size_t first, std::size_t rows, std::size_t kv_head,
             Thread& own) const noexcept {
    const std::size_t width = own.pieces.key_width();
    for (std::size_t i = 0; i < rows; ++i) {
      const float temperature = algorithm::query_temperature(spec_, context.position_of(first + i));
      const float* const row = context.arena.row(op_.query, first + i);
      for (std::size_t h = 0; h < heads_; ++h) {
        const float* const in = row + (kv_head * heads_ + h) * spec_.head_dim;
        float* const out = own.queries.data() + (i * heads_ + h) * width;
        for (std::size_t c = 0; c < spec_.head_dim; ++c) out[c] = in[c] * temperature;
      }
    }
    own.pieces.begin({.first = own.queries.data(),
                      .head_stride = width,
                      .row_stride = heads_ * width,
                      .heads = heads_,
                      .rows = rows});
  }
  void begin(const Context& context, const RowBlock& block, std::size_t kv_head,
             Thread& own) const noexcept {
    begin(context, first_row(context, block), block.rows, kv_head, own);
  }
  static std::size_t first_row(const Context& context, const RowBlock& block) noexcept {
    return context.step().segments[block.segment].first_row + std::size_t{block.first};
  }

  void finish(Context& context, std::size_t first, std::size_t rows, std::size_t kv_head,
              const Thread& own) const noexcept {
    for (std::size_t i = 0; i < rows; ++i) {
      float* const out = context.arena.row(op_.out, first + i);
      for (std::size_t h = 0; h < heads_; ++h) {
        const std::size_t head = kv_head * heads_ + h;
        own.pieces.finish(i * heads_ + h, spec_.sinks ? &sinks_[head] : nullptr,
                          out + head * spec_.value_dim);
      }
    }
  }
  void finish(Context& context, const RowBlock& block, std::size_t kv_head,
              const Thread& own) const noexcept {
    finish(context, first_row(context, block), block.rows, kv_head, own);
  }

  backend::Attend op_;
  algorithm::GqaSpec spec_;
  std::size_t heads_;       ///< query heads of a KV head
  std::size_t list_limit_;  ///< keys of one list
  std::span<const float> sinks_;
  std::vector<float> slopes_;  ///< ALiBi's, or none
  bool in_place_ = false;      ///< keys, and values of few queries, are read where they lie
  Scratch* scratch_;
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Attend& op, const Context& context) {
  return std::make_unique<AttendExecutor>(op, context);
}

}  // namespace lemma::cpu
