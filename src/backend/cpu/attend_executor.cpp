// SPDX-License-Identifier: Apache-2.0
// Attention over key-value heads. A thread takes one KV head of a block of consecutive rows of a
// segment, so that keys and values are decoded once for all their query heads; where each row has
// its own list of keys, one KV head of one row. A block of few queries takes several KV heads side
// by side, piece by piece, so that rows of the state are read whole and in order. Where that leaves
// threads without work, as in the decoding of one long sequence, they share out the history's spans
// of 512 positions, whose results are then merged in ascending order: the same numbers.
#include <algorithm>
#include <array>
#include <vector>

#include "algorithm/attention/gqa.hpp"
#include "backend/cpu/executor.hpp"
#include "backend/cpu/pieces.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// Queries of a block: the most, against which the decoding of their keys and values counts little,
/// and the fewest, down to which blocks are cut until there is one for each thread to take.
constexpr std::size_t kMostQueries = 256, kFewestQueries = 64;
/// A block of at most so many queries reads the values where they lie; more read them so often that
/// decoding them once is cheaper.
constexpr std::size_t kInPlaceQueries = 8;
/// Fewer items than this for each thread are split by spans.
constexpr std::size_t kItemsPerThread = 4;
/// Spans that are computed before they are merged: 16,384 positions.
constexpr std::size_t kSpansAtOnce = 32;
/// Bytes of the keys and values of a piece, of all KV heads that take it side by side: they and
/// those of the next piece stay in the second cache.
constexpr std::size_t kBytesSideBySide = std::size_t{256} << 10;
constexpr std::size_t kBytes16 = 2, kLine = 64;

std::size_t block_rows(std::size_t queries, std::size_t heads) noexcept {
  return std::max<std::size_t>(1, queries / heads);
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
    const std::size_t queries = block_rows(kMostQueries, shape[0]) * shape[0];
    for (int t = 0; t < context.pool.threads(); ++t) {
      threads.push_back({std::vector<float>(queries * padded(shape[1])),
                         std::vector<std::uint32_t>(shape[3]),
                         Pieces(whole_attention(context.kernels, context.weights), queries,
                                shape[1], shape[2], false)});
    }
    blocks.resize(context.max_rows);
    const std::size_t fewest = block_rows(kFewestQueries, shape[0]) * shape[0];
    part_floats = threads.front().pieces.part_floats(fewest);
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
    whole_ = whole_attention(context.kernels, context.weights) != nullptr;
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
    const std::span<const RowBlock> blocks = cut(context);
    std::size_t work = 0, longest = 0;
    for (const backend::Segment& segment : context.step().segments) {
      const std::size_t end = segment.past + segment.rows;
      work += segment.rows * end;
      longest =
          std::max(longest, spec_.window == 0 ? end : std::min<std::size_t>(end, spec_.window));
    }
    work *= spec_.query_heads * (spec_.head_dim + spec_.value_dim);
    if (longest > kSpan && blocks.size() * kv_heads < enough_items()) {
      return attend_by_spans(context, blocks, work);
    }
    const Groups groups = group_heads(blocks, 1);
    const std::size_t items = blocks.size() * groups.count;
    context.each(items, work, [&](std::size_t item, int thread) {
      const std::size_t i = items - 1 - item;  // the longest histories first
      const RowBlock& block = blocks[i / groups.count];
      const Heads heads = groups.heads(i % groups.count, kv_heads);
      Scratch::Thread& own = scratch_->threads[static_cast<std::size_t>(thread)];
      begin(context, block, heads, own);
      attend(context, block, heads, {0, ~std::uint32_t{0}}, ~std::uint32_t{0}, own);
      finish(context, block, heads, own);
    });
  }

  std::string implementation() const override { return whole_ ? kWholeImplementation : ""; }

 private:
  using Thread = Scratch::Thread;

  /// KV heads that a thread takes side by side.
  struct Heads {
    std::size_t first = 0, count = 1;
  };
  /// All KV heads, as items of at most `size`.
  struct Groups {
    std::size_t size = 1, count = 0;
    Heads heads(std::size_t group, std::size_t all) const noexcept {
      return {group * size, std::min(size, all - group * size)};
    }
  };

  std::size_t enough_items() const noexcept { return kItemsPerThread * scratch_->threads.size(); }

  /// The step's rows in blocks as large as leave enough items.
  std::span<const RowBlock> cut(const Context& context) noexcept {
    for (std::size_t queries = kMostQueries;; queries /= 2) {
      const auto rows = static_cast<std::uint32_t>(block_rows(queries, heads_));
      const std::size_t count = cut_rows(context.step(), rows, scratch_->blocks);
      if (queries == kFewestQueries || count * spec_.kv_heads >= enough_items()) {
        return {scratch_->blocks.data(), count};
      }
    }
  }

  /// As many heads side by side as leave enough items, where there are `spans` for each head. Many
  /// queries take long over a head's rows, so nothing is gained by reading the next head's.
  Groups group_heads(std::span<const RowBlock> blocks, std::size_t spans) const noexcept {
    std::size_t rows = 0;
    for (const RowBlock& block : blocks) rows = std::max<std::size_t>(rows, block.rows);
    std::size_t size = 1;
    if (in_place_ && rows * heads_ <= kInPlaceQueries) {
      const std::size_t bytes = kPiece * (spec_.head_dim + spec_.value_dim) * kBytes16;
      size = std::min({spec_.kv_heads * blocks.size() * spans / enough_items(),
                       kMostQueries / (rows * heads_), kBytesSideBySide / bytes,
                       std::size_t{spec_.kv_heads}});
      size = std::max<std::size_t>(size, 1);
    }
    const std::size_t count = (spec_.kv_heads + size - 1) / size;
    return {(spec_.kv_heads + count - 1) / count, count};
  }

  /// Reads keys and values of KV heads as the state holds them, where they lie if kernels can; what
  /// lies from `until` on is not asked for. `queries`: how often values are read.
  auto decoder(Context& context, const backend::Segment& segment, Heads heads, std::uint32_t until,
               Pieces& pieces, std::size_t queries) const noexcept {
    return [this, &context, &segment, heads, until, &pieces, queries](
               std::uint32_t first, std::size_t count, std::size_t place, std::size_t group) {
      const std::size_t head = heads.first + group;
      const std::size_t key = head * spec_.head_dim, value = head * spec_.value_dim;
      Pieces::InPlace rows;
      if (in_place_) {
        const state::SlotPlace& keys = slot(context, op_.key);
        const state::SlotPlace& values = slot(context, op_.value);
        const auto at = [&](const state::SlotPlace& of, backend::SlotId id, std::size_t begin) {
          return context.state.row(id, *segment.sequence, first) + kBytes16 * begin -
                 place * of.row_bytes;
        };
        rows.format = keys.format == algorithm::RowFormat::kF16 ? 0 : 1;
        rows.keys = at(keys, op_.key, key);
        rows.key_stride = keys.row_bytes / kBytes16;
        rows.value_stride = values.row_bytes / kBytes16;
        if (queries <= kInPlaceQueries) rows.values = at(values, op_.value, value);
        const std::uint32_t next = first - std::uint32_t(place) + std::uint32_t{kPiece};
        if (next < std::min(until, segment.past + segment.rows)) {
          const bool all = heads.count == spec_.kv_heads;
          const Ahead keys_ahead = next_rows(context, segment, op_.key, next, heads, group);
          rows.next_values = next_rows(context, segment, op_.value, next, heads, group);
          (all ? rows.key_lines : rows.next_keys.first) = keys_ahead.first;
          rows.next_keys.stride = keys_ahead.stride;
        }
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

  static const state::SlotPlace& slot(const Context& context, backend::SlotId id) noexcept {
    return context.state.layout().slots()[static_cast<std::size_t>(id)];
  }

  /// What group `group` of the heads asks for of the piece at `next`: its own rows' parts; where
  /// the heads are all there are, as many lines in the order in which they lie in memory. (Parts of
  /// rows that lie a power of two apart would keep few of the memory's channels busy.)
  Ahead next_rows(Context& context, const backend::Segment& segment, backend::SlotId id,
                  std::uint32_t next, Heads heads, std::size_t group) const noexcept {
    const std::size_t width = id == op_.key ? spec_.head_dim : spec_.value_dim;
    const std::byte* const rows = context.state.row(id, *segment.sequence, next);
    if (heads.count < spec_.kv_heads) {
      return {rows + (heads.first + group) * width * kBytes16, slot(context, id).row_bytes};
    }
    const std::size_t lines = (width * kBytes16 + kLine - 1) / kLine * kLine;
    return {rows + group * kPiece * width * kBytes16, lines};
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

  /// Attends to what the block's rows see within `limits`; the thread goes on until `until`.
  void attend(Context& context, const RowBlock& block, Heads heads, algorithm::VisibleRange limits,
              std::uint32_t until, Thread& own) const noexcept {
    const backend::Segment& segment = context.step().segments[block.segment];
    std::array<algorithm::VisibleRange, kMostQueries> ranges;
    for (std::uint32_t i = 0; i < block.rows; ++i) {
      const algorithm::VisibleRange range =
          algorithm::visible_range(segment.past + block.first + i, spec_.window,
                                   spec_.causal ? 0 : segment.past + segment.rows);
      ranges[i] = {std::clamp(range.begin, limits.begin, limits.end),
                   std::clamp(range.end, limits.begin, limits.end)};
    }
    own.pieces.attend(context.kernels, rule(context, first_row(context, block), heads),
                      {ranges.data(), block.rows},
                      decoder(context, segment, heads, until, own.pieces,
                              whole_ && is_entered(segment) ? 0 : block.rows * heads_));
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
      const Groups groups = group_heads(blocks, spans);
      const std::size_t some =  // spans that a thread takes one after the other
          std::max<std::size_t>(1, blocks.size() * groups.count * spans / enough_items());
      const std::size_t runs = (spans + some - 1) / some;
      context.each(blocks.size() * groups.count * runs, work, [&](std::size_t i, int thread) {
        const std::size_t item = i / runs, run = i % runs * some;
        attend_spans(context, blocks, item / groups.count,
                     groups.heads(item % groups.count, kv_heads), from,
                     {run, std::min(run + some, spans)},
                     scratch_->threads[static_cast<std::size_t>(thread)]);
      });
      context.each(items, from == first ? work : 0, [&](std::size_t item, int thread) {
        const RowBlock& block = blocks[item / kv_heads];
        const Heads head{item % kv_heads, 1};
        Thread& own = scratch_->threads[static_cast<std::size_t>(thread)];
        begin(context, block, head, own);
        if (from > first) own.pieces.merge(0, total(item));
        for (std::size_t span = 0; span < spans; ++span) own.pieces.merge(0, part(item, span));
        if (from + spans < last) return own.pieces.save(0, total(item));
        finish(context, block, head, own);
      });
    }
  }

  /// Spans of those from `from` on, as counted from there, one after the other.
  struct Spans {
    std::size_t begin = 0, end = 0;
  };
  void attend_spans(Context& context, std::span<const RowBlock> blocks, std::size_t block,
                    Heads heads, std::size_t from, Spans spans, Thread& own) noexcept {
    const auto position = [&](std::size_t span) {
      return static_cast<std::uint32_t>((from + span) * kSpan);
    };
    begin(context, blocks[block], heads, own);
    for (std::size_t span = spans.begin; span < spans.end; ++span) {
      if (span > spans.begin) own.pieces.begin_again();
      attend(context, blocks[block], heads, {position(span), position(span + 1)},
             position(spans.end), own);
      for (std::size_t g = 0; g < heads.count; ++g) {
        own.pieces.save(g, part(block * spec_.kv_heads + heads.first + g, span));
      }
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
    begin(context, row, 1, {kv_head, 1}, own);
    if (list.empty()) {
      context.mark(row);
    } else {
      own.pieces.attend(context.kernels, rule(context, row, {kv_head, 1}), list,
                        decoder(context, segment, {kv_head, 1}, 0, own.pieces, heads_));
    }
    finish(context, row, 1, {kv_head, 1}, own);
  }

  ScoreRule rule(const Context& context, std::size_t row, Heads heads) const noexcept {
    ScoreRule rule{spec_.scale, spec_.softcap, {}, context.position_of(row)};
    if (!slopes_.empty()) {
      rule.slopes = {slopes_.data() + heads.first * heads_, heads.count * heads_};
    }
    return rule;
  }

  /// The queries of KV heads, times the temperature of their position, zero-padded.
  void begin(const Context& context, std::size_t first, std::size_t rows, Heads heads,
             Thread& own) const noexcept {
    const std::size_t width = own.pieces.key_width(), group = rows * heads_ * width;
    for (std::size_t i = 0; i < rows; ++i) {
      const float temperature = algorithm::query_temperature(spec_, context.position_of(first + i));
      const float* const row =
          context.arena.row(op_.query, first + i) + heads.first * heads_ * spec_.head_dim;
      for (std::size_t h = 0; h < heads.count * heads_; ++h) {
        const float* const in = row + h * spec_.head_dim;
        float* const out =
            own.queries.data() + h / heads_ * group + (i * heads_ + h % heads_) * width;
        for (std::size_t c = 0; c < spec_.head_dim; ++c) out[c] = in[c] * temperature;
      }
    }
    own.pieces.begin({.first = own.queries.data(),
                      .head_stride = width,
                      .row_stride = heads_ * width,
                      .heads = heads_,
                      .rows = rows,
                      .groups = heads.count,
                      .group_stride = group},
                     is_entered(context.segment_of(first)));
  }
  void begin(const Context& context, const RowBlock& block, Heads heads,
             Thread& own) const noexcept {
    begin(context, first_row(context, block), block.rows, heads, own);
  }
  static std::size_t first_row(const Context& context, const RowBlock& block) noexcept {
    return context.step().segments[block.segment].first_row + std::size_t{block.first};
  }

  void finish(Context& context, std::size_t first, std::size_t rows, Heads heads,
              const Thread& own) const noexcept {
    for (std::size_t i = 0; i < rows; ++i) {
      float* const out = context.arena.row(op_.out, first + i);
      for (std::size_t h = 0; h < heads.count * heads_; ++h) {
        const std::size_t head = heads.first * heads_ + h;
        own.pieces.finish((h / heads_ * rows + i) * heads_ + h % heads_,
                          spec_.sinks ? &sinks_[head] : nullptr, out + head * spec_.value_dim);
      }
    }
  }
  void finish(Context& context, const RowBlock& block, Heads heads,
              const Thread& own) const noexcept {
    finish(context, first_row(context, block), block.rows, heads, own);
  }

  backend::Attend op_;
  algorithm::GqaSpec spec_;
  std::size_t heads_;       ///< query heads of a KV head
  std::size_t list_limit_;  ///< keys of one list
  std::span<const float> sinks_;
  std::vector<float> slopes_;  ///< ALiBi's, or none
  bool whole_ = false;         ///< entered rows: in whole numbers
  bool in_place_ = false;      ///< keys, and values of few queries, are read where they lie
  Scratch* scratch_;
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Attend& op, const Context& context) {
  return std::make_unique<AttendExecutor>(op, context);
}

}  // namespace lemma::cpu
