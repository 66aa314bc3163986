// SPDX-License-Identifier: Apache-2.0
// Attention over a window of rows and the compressed entries before it, under one softmax: first
// the pieces of the window, then those of the entries. One row is key and value of all heads, so
// that a thread takes a group of heads of up to 8 rows, or of one row where entries are chosen.
#include <algorithm>
#include <array>
#include <vector>

#include "backend/cpu/executor.hpp"
#include "backend/cpu/pieces.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// Heads that share decoded rows; see latent_executor.cpp.
constexpr std::size_t kHeadGroup = 16;

class AttendCompressedExecutor final : public Executor {
 public:
  AttendCompressedExecutor(const backend::AttendCompressed& op, const Context& context)
      : op_(op),
        heads_(op.spec.heads),
        dim_(op.spec.head_dim),
        list_limit_(op.selection ? op.selection.width - 1 : 0),
        sinks_(context.vector(op.sinks)),
        whole_(whole_attention(context.kernels, context.weights) != nullptr) {
    LEMMA_CHECK(op.query.width == heads_ * dim_ && op.out.width == op.query.width);
    LEMMA_CHECK(!op.spec.sinks || sinks_.size() == heads_);
    const std::size_t queries = Context::kRowBlock * std::min(kHeadGroup, heads_);
    for (int t = 0; t < context.pool.threads(); ++t) {
      scratch_.push_back(
          {std::vector<float>(queries * padded(dim_)), std::vector<std::uint32_t>(list_limit_),
           Pieces(whole_attention(context.kernels, context.weights), queries, dim_, dim_, true)});
    }
  }

  void run(Context& context) noexcept override {
    const std::size_t groups = (heads_ + kHeadGroup - 1) / kHeadGroup;
    const std::span<const RowBlock> blocks = context.row_blocks();
    if (op_.selection) {
      const std::size_t seen = op_.spec.window + list_limit_;
      context.each(context.rows() * groups, context.rows() * seen * 2 * heads_ * dim_,
                   [&](std::size_t item, int thread) {
                     const std::size_t row = item / groups;
                     attend(context, context.segment_of(row), row, 1, item % groups * kHeadGroup,
                            scratch_[static_cast<std::size_t>(thread)]);
                   });
      return context.settle(op_.selection);
    }
    std::size_t work = 0;
    for (const backend::Segment& segment : context.step().segments) {
      const std::size_t end = segment.past + segment.rows;
      work += segment.rows * (op_.spec.window + (op_.spec.ratio > 0 ? end / op_.spec.ratio : 0));
    }
    context.each(blocks.size() * groups, work * 2 * heads_ * dim_,
                 [&](std::size_t item, int thread) {
                   const RowBlock& block = blocks[item / groups];
                   const backend::Segment& segment = context.step().segments[block.segment];
                   attend(context, segment, segment.first_row + block.first, block.rows,
                          item % groups * kHeadGroup, scratch_[static_cast<std::size_t>(thread)]);
                 });
  }

  std::string implementation() const override { return whole_ ? kWholeImplementation : ""; }
  std::size_t scratch_bytes() const noexcept override {
    const Scratch& s = scratch_.front();
    return scratch_.size() * (s.queries.size() * sizeof(float) +
                              s.list.size() * sizeof(std::uint32_t) + s.pieces.bytes());
  }

 private:
  /// One thread's memory.
  struct Scratch {
    std::vector<float> queries;  ///< [8 rows, heads of a group, d padded]
    std::vector<std::uint32_t> list;
    Pieces pieces;
  };

  void attend(Context& context, const backend::Segment& segment, std::size_t row, std::size_t rows,
              std::size_t head, Scratch& scratch) noexcept {
    const std::size_t heads = std::min(kHeadGroup, heads_ - head);
    const ScoreRule rule{op_.spec.scale};
    begin(context, row, rows, head, heads, scratch);
    const auto decoder = [&](backend::SlotId slot) {
      return [this, slot, &context, &segment, &scratch](std::uint32_t first, std::size_t count,
                                                        std::size_t place, std::size_t) {
        context.decode_rows(slot, *segment.sequence, first, count, 0, dim_,
                            scratch.pieces.key(place), scratch.pieces.key_stride());
        return Pieces::InPlace{};
      };
    };
    std::array<algorithm::VisibleRange, Context::kRowBlock> window, entries;
    for (std::size_t i = 0; i < rows; ++i) {
      const std::uint32_t position = context.position_of(row + i);
      window[i] = algorithm::visible_range(position, op_.spec.window);
      entries[i] = {0, op_.spec.visible_entries(position)};
    }
    scratch.pieces.attend(context.kernels, rule, {window.data(), rows}, decoder(op_.rows));
    const auto entry = decoder(op_.entries);
    if (op_.selection) {
      scratch.pieces.attend(context.kernels, rule, list(context, row, scratch), entry);
    } else if (op_.entries >= 0) {
      scratch.pieces.attend(context.kernels, rule, {entries.data(), rows}, entry);
    }
    for (std::size_t q = 0; q < rows * heads; ++q) {
      const std::size_t own = head + q % heads;
      scratch.pieces.finish(q, op_.spec.sinks ? &sinks_[own] : nullptr,
                            context.arena.row(op_.out, row + q / heads) + own * dim_);
    }
  }

  /// The entries that a row chose; none while none is visible.
  std::span<const std::uint32_t> list(Context& context, std::size_t row,
                                      Scratch& scratch) const noexcept {
    const float* const from = context.arena.row(op_.selection, row);
    if (from[0] == 0.f) return {};
    const std::span<const std::uint32_t> list = read_list(
        from, list_limit_, op_.spec.visible_entries(context.position_of(row)), scratch.list);
    if (list.empty()) context.mark(row);
    return list;
  }

  void begin(const Context& context, std::size_t row, std::size_t rows, std::size_t head,
             std::size_t heads, Scratch& scratch) const noexcept {
    const std::size_t width = scratch.pieces.key_width();
    for (std::size_t q = 0; q < rows * heads; ++q) {
      std::copy_n(context.arena.row(op_.query, row + q / heads) + (head + q % heads) * dim_, dim_,
                  scratch.queries.data() + q * width);
    }
    scratch.pieces.begin({.first = scratch.queries.data(),
                          .head_stride = width,
                          .row_stride = heads * width,
                          .heads = heads,
                          .rows = rows},
                         is_entered(context.segment_of(row)));
  }

  backend::AttendCompressed op_;
  std::size_t heads_, dim_;
  std::size_t list_limit_;  ///< entries of a list
  std::span<const float> sinks_;
  bool whole_;                    ///< entered rows: in whole numbers
  std::vector<Scratch> scratch_;  ///< by thread
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::AttendCompressed& op, const Context& context) {
  return std::make_unique<AttendCompressedExecutor>(op, context);
}

}  // namespace lemma::cpu
