// SPDX-License-Identifier: Apache-2.0
// Selection: what each row attends to. A thread takes up to 8 consecutive rows of a segment, so
// that index keys are decoded once for all of them, and walks the candidates in pieces of 64. The
// best so far stand in a heap as long as a list, under the one order of choices (score descending,
// index ascending); so nothing grows with the text, and the choice is that of sorting all scores.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/executor.hpp"
#include "backend/cpu/pieces.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

using algorithm::CompressedSparseSpec;
using algorithm::DsaSpec;
using algorithm::MsaSpec;

/// The best of a stream of candidates.
class Best {
 public:
  explicit Best(std::size_t limit) : heap_(limit) {}
  void clear() noexcept { size_ = 0; }
  /// Candidates come with ascending indices.
  void offer(float score, std::uint32_t index) noexcept {
    const Choice choice{score, index};
    if (size_ < heap_.size()) {
      heap_[size_++] = choice;
      std::push_heap(heap_.begin(), end(), better);
    } else if (better(choice, heap_.front())) {
      std::pop_heap(heap_.begin(), end(), better);
      heap_[size_ - 1] = choice;
      std::push_heap(heap_.begin(), end(), better);
    }
  }
  /// The indices of those that are left, ascending, to the front of `out`; returns how many.
  std::size_t take(std::uint32_t* out) const noexcept {
    for (std::size_t i = 0; i < size_; ++i) out[i] = heap_[i].index;
    std::sort(out, out + size_);
    return size_;
  }

 private:
  struct Choice {
    float score;
    std::uint32_t index;
  };
  // A heap of "better" has the worst on top.
  static bool better(const Choice& a, const Choice& b) noexcept {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  }
  std::vector<Choice>::iterator end() noexcept {
    return heap_.begin() + static_cast<std::ptrdiff_t>(size_);
  }

  std::vector<Choice> heap_;
  std::size_t size_ = 0;
};

/// What the three rules have in common: `lists` lists a row, each chosen by `heads` index heads.
struct Shape {
  std::size_t lists = 1, heads = 1, dim = 0;
  std::size_t chosen = 0;  ///< candidates of a list at most
  std::size_t ratio = 1;   ///< tokens per candidate row
};

Shape shape_of(const DsaSpec& spec) noexcept {
  const std::size_t ratio = spec.kpool > 0 ? spec.kpool : 1;
  return {1, spec.indexer.heads, spec.indexer.dim, spec.indexer.top_k / ratio, ratio};
}
Shape shape_of(const MsaSpec& spec) noexcept {
  return {spec.index_heads, 1, spec.index_dim, spec.top_k, 1};
}
Shape shape_of(const CompressedSparseSpec& spec) noexcept {
  return {1, spec.indexer.heads, spec.indexer.dim, spec.indexer.top_k, spec.ratio};
}

/// Rows of keys that the row at `position` may choose among.
std::uint32_t candidates(const DsaSpec& spec, std::uint32_t position) noexcept {
  return spec.kpool > 0 ? algorithm::closed_rows(position + 1, spec.kpool) : position + 1;
}
std::uint32_t candidates(const MsaSpec&, std::uint32_t position) noexcept {
  return position + 1;
}
std::uint32_t candidates(const CompressedSparseSpec& spec, std::uint32_t position) noexcept {
  return spec.visible_entries(position);
}

/// Whether all of them are chosen, so that no score counts.
template <typename Rule>
bool takes_all(const Rule& rule, std::uint32_t position) noexcept {
  return candidates(rule, position) <= shape_of(rule).chosen;
}
bool takes_all(const MsaSpec& spec, std::uint32_t position) noexcept {
  return spec.visible_blocks(position) <= spec.top_k;
}

/// Replaces the `count` choices at the front of `list` by the indices that are attended to; returns
/// how many.
std::size_t expand(const DsaSpec& spec, std::uint32_t position, std::size_t count,
                   std::uint32_t* list) noexcept {
  if (spec.kpool == 0) return count;
  // The last pool moves first, so that none is overwritten before it was read.
  for (std::size_t i = count; i-- > 0;) {
    const std::uint32_t first = list[i] * spec.kpool;
    for (std::uint32_t s = 0; s < spec.kpool; ++s) list[i * spec.kpool + s] = first + s;
  }
  count *= spec.kpool;
  const std::uint32_t whole = candidates(spec, position);
  if (spec.always_select_tail || whole == 0) {
    for (std::uint32_t j = whole * spec.kpool; j <= position; ++j) list[count++] = j;
  }
  return count;
}
std::size_t expand(const MsaSpec& spec, std::uint32_t position, std::size_t count,
                   std::uint32_t* list) noexcept {
  std::size_t keys = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t first = std::uint64_t{list[i]} * spec.block_size;
    keys += std::min<std::uint64_t>(spec.block_size, position + std::uint64_t{1} - first);
  }
  // The last block moves first, so that none is overwritten before it was read.
  std::size_t to = keys;
  for (std::size_t i = count; i-- > 0;) {
    const std::uint32_t first = list[i] * spec.block_size;
    for (std::uint32_t s = std::min(spec.block_size, position + 1 - first); s-- > 0;) {
      list[--to] = first + s;
    }
  }
  return keys;
}
std::size_t expand(const CompressedSparseSpec&, std::uint32_t, std::size_t count,
                   std::uint32_t*) noexcept {
  return count;
}

template <typename Rule>
class SelectExecutor final : public Executor {
 public:
  SelectExecutor(const backend::Select& op, const Rule& rule, const Context& context)
      : op_(op),
        rule_(rule),
        shape_(shape_of(rule)),
        width_(padded(shape_.dim)),
        stride_(op.out.width / shape_.lists) {
    LEMMA_CHECK(op.query.width == shape_.lists * shape_.heads * shape_.dim);
    LEMMA_CHECK(op.out.width % shape_.lists == 0 && stride_ > 1);
    for (int t = 0; t < context.pool.threads(); ++t) {
      Scratch& s = scratch_.emplace_back();
      s.keys.resize(kPiece * width_);
      s.queries.resize(Context::kRowBlock * shape_.lists * shape_.heads * width_);
      s.largest.resize(Context::kRowBlock * shape_.lists);
      s.best.assign(Context::kRowBlock * shape_.lists, Best(shape_.chosen));
      s.list.resize(stride_);
    }
  }

  void run(Context& context) noexcept override {
    const std::span<const RowBlock> blocks = context.row_blocks();
    std::size_t work = 0;
    for (const backend::Segment& segment : context.step().segments) {
      work += std::size_t{segment.rows} * (segment.past + segment.rows) / shape_.ratio;
    }
    context.each(blocks.size(), work * op_.query.width, [&](std::size_t item, int thread) {
      select(context, blocks[item], scratch_[static_cast<std::size_t>(thread)]);
    });
    context.settle(op_.query);
  }

  std::size_t scratch_bytes() const noexcept override {
    const Scratch& s = scratch_.front();
    return scratch_.size() * sizeof(float) *
           (s.keys.size() + s.queries.size() + s.largest.size() + s.list.size() +
            2 * s.best.size() * shape_.chosen);
  }

 private:
  /// One thread's memory; a block's lists are numbered row by row.
  struct Scratch {
    std::vector<float> keys;     ///< [64, dim padded]
    std::vector<float> queries;  ///< [8 rows, lists, heads, dim padded]
    std::vector<float> largest;  ///< of the block of keys under way, by list
    std::vector<Best> best;      ///< by list
    std::vector<std::uint32_t> list;
    bool failed[Context::kRowBlock];
  };

  void select(Context& context, const RowBlock& block, Scratch& s) noexcept {
    const backend::Segment& segment = context.step().segments[block.segment];
    const std::uint32_t first = segment.past + block.first;
    const std::size_t row = segment.first_row + block.first;
    for (Best& best : s.best) best.clear();
    std::fill_n(s.failed, block.rows, false);
    std::fill(s.largest.begin(), s.largest.end(), -std::numeric_limits<float>::infinity());
    // Later rows see more, so where the last one takes all, all do.
    const std::uint32_t last = first + block.rows - 1;
    const std::uint32_t end = takes_all(rule_, last) ? 0 : candidates(rule_, last);
    if (end > 0) load_queries(context, row, block.rows, s);
    for (std::uint32_t start = 0; start < end; start += kPiece) {
      const std::uint32_t count = std::min<std::uint32_t>(kPiece, end - start);
      for (std::uint32_t j = 0; j < count; ++j) {
        context.decode_row(op_.keys, *segment.sequence,
                           (start + j) * static_cast<std::uint32_t>(shape_.ratio), 0, shape_.dim,
                           s.keys.data() + j * width_);
      }
      for (std::uint32_t i = 0; i < block.rows; ++i) {
        const std::uint32_t visible = candidates(rule_, first + i);
        if (takes_all(rule_, first + i) || visible <= start || s.failed[i]) continue;
        s.failed[i] =
            !score(context, row + i, i, first + i, start, std::min(count, visible - start), s);
      }
    }
    for (std::uint32_t i = 0; i < block.rows; ++i) write(context, row + i, i, first + i, s);
  }

  void load_queries(const Context& context, std::size_t row, std::size_t rows,
                    Scratch& s) const noexcept {
    const std::size_t heads = shape_.lists * shape_.heads;
    for (std::size_t i = 0; i < rows * heads; ++i) {
      std::copy_n(context.arena.row(op_.query, row + i / heads) + i % heads * shape_.dim,
                  shape_.dim, s.queries.data() + i * width_);
    }
  }

  /// Offers the candidates [start, start + count) to row `i` of the block; false if a score is not
  /// finite.
  bool score(const Context& context, std::size_t row, std::size_t i, std::uint32_t position,
             std::uint32_t start, std::size_t count, Scratch& s) const noexcept {
    float dots[kPiece + kPanelRows], scores[kPiece];
    const float* query = s.queries.data() + i * shape_.lists * shape_.heads * width_;
    if constexpr (std::is_same_v<Rule, MsaSpec>) {
      for (std::size_t l = 0; l < shape_.lists; ++l, query += width_) {
        context.kernels.scores(query, s.keys.data(), width_, count, width_, dots);
        const std::size_t list = i * shape_.lists + l;
        if (!offer_blocks(dots, position, start, count, s.largest[list], s.best[list])) {
          return false;
        }
      }
      return true;
    } else {
      const float head_scale = 1.f / std::sqrt(static_cast<float>(shape_.heads));
      const float dot_scale = 1.f / std::sqrt(static_cast<float>(shape_.dim));
      const float* const weights = context.arena.row(op_.weights, row);
      std::fill_n(scores, count, 0.f);
      for (std::size_t h = 0; h < shape_.heads; ++h, query += width_) {
        context.kernels.scores(query, s.keys.data(), width_, count, width_, dots);
        const float weight = weights[h] * head_scale;
        for (std::size_t j = 0; j < count; ++j) {
          const float dot = dots[j] * dot_scale;
          scores[j] += weight * (dot < 0.f ? 0.f : dot);  // NaN stays
        }
      }
      for (std::size_t j = 0; j < count; ++j) {
        if (!std::isfinite(scores[j])) return false;
        s.best[i].offer(scores[j], start + static_cast<std::uint32_t>(j));
      }
      return true;
    }
  }

  /// A block counts by its largest score, when its last key that the row sees has come.
  bool offer_blocks(const float* scores, std::uint32_t position, std::uint32_t start,
                    std::size_t count, float& largest,
                    Best& best) const noexcept requires std::is_same_v<Rule, MsaSpec> {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const std::uint32_t visible = rule_.visible_blocks(position);
    for (std::size_t n = 0; n < count; ++n) {
      if (!std::isfinite(scores[n])) return false;
      largest = std::max(largest, scores[n]);
      const std::uint32_t j = start + static_cast<std::uint32_t>(n), b = j / rule_.block_size;
      if ((j + 1) % rule_.block_size != 0 && j != position) continue;
      const bool forced = b < rule_.init_blocks || visible - b <= rule_.local_blocks;
      best.offer(forced ? kInfinity : largest, b);
      largest = -kInfinity;
    }
    return true;
  }

  void write(Context& context, std::size_t row, std::size_t i, std::uint32_t position,
             Scratch& s) const noexcept {
    float* const out = context.arena.row(op_.out, row);
    std::fill_n(out, op_.out.width, 0.f);
    if (s.failed[i]) context.mark(row);
    for (std::size_t l = 0; l < shape_.lists; ++l) {
      float* const to = out + l * stride_;
      std::size_t count = 0;
      if (s.failed[i]) {  // whoever reads the failed row finds the first index alone
        s.list[count++] = 0;
      } else if (takes_all(rule_, position)) {
        if constexpr (std::is_same_v<Rule, MsaSpec>) {
          count = rule_.visible_blocks(position);
        } else {
          count = candidates(rule_, position);
        }
        for (std::size_t n = 0; n < count; ++n) s.list[n] = static_cast<std::uint32_t>(n);
        count = expand(rule_, position, count, s.list.data());
      } else {
        count = s.best[i * shape_.lists + l].take(s.list.data());
        count = expand(rule_, position, count, s.list.data());
      }
      LEMMA_CHECK(count < stride_);
      to[0] = static_cast<float>(count);
      for (std::size_t n = 0; n < count; ++n) to[1 + n] = static_cast<float>(s.list[n]);
    }
  }

  backend::Select op_;
  Rule rule_;
  Shape shape_;
  std::size_t width_;             ///< of an index query and key, padded
  std::size_t stride_;            ///< floats of one list: its length and its indices
  std::vector<Scratch> scratch_;  ///< by thread
};

}  // namespace

std::unique_ptr<Executor> plan(const backend::Select& op, const Context& context) {
  return std::visit(
      [&](const auto& rule) -> std::unique_ptr<Executor> {
        using Rule = std::remove_cvref_t<decltype(rule)>;
        return std::make_unique<SelectExecutor<Rule>>(op, rule, context);
      },
      op.rule);
}

}  // namespace lemma::cpu
