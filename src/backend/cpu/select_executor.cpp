// SPDX-License-Identifier: Apache-2.0
// Selection: what each row attends to. A thread takes up to 8 consecutive rows of a segment, so
// that index keys are decoded and turned once for all their heads, whose products with them are one
// product of many rows; so it walks the candidates in pieces of 64. The
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

/// Keys whose scores are computed before they are offered where threads share a row, and those that
/// a thread takes at a time.
constexpr std::uint32_t kWaveKeys = 8192, kSharedKeys = 512;

/// Scores of a wave, shared by the layers. Shape: lists of a row.
struct WaveScores {
  WaveScores(const Context&, std::span<const std::size_t> shape)
      : scores(Context::kRowBlock * shape[0] * kWaveKeys) {}
  std::size_t bytes() const noexcept { return scores.size() * sizeof(float); }
  std::vector<float> scores;  ///< [8 rows, lists, keys of a wave]
};

template <typename Rule>
class SelectExecutor final : public Executor {
 public:
  SelectExecutor(const backend::Select& op, const Rule& rule, const Context& context)
      : op_(op),
        rule_(rule),
        shape_(shape_of(rule)),
        width_(padded(shape_.dim)),
        stride_(op.out.width / shape_.lists),
        wave_(context.shared<WaveScores>({shape_.lists})) {
    LEMMA_CHECK(op.query.width == shape_.lists * shape_.heads * shape_.dim);
    LEMMA_CHECK(op.out.width % shape_.lists == 0 && stride_ > 1);
    for (int t = 0; t < context.pool.threads(); ++t) {
      Scratch& s = scratch_.emplace_back();
      s.keys.resize(kPiece * width_);
      s.panels.resize(kPiece * width_);
      s.queries.resize(Context::kRowBlock * shape_.lists * shape_.heads * width_);
      s.dots.resize(Context::kRowBlock * shape_.lists * shape_.heads * kPiece);
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
    if (blocks.size() < scratch_.size()) {
      for (const RowBlock& block : blocks) select_together(context, block);
    } else {
      context.each(blocks.size(), work * op_.query.width, [&](std::size_t item, int thread) {
        select(context, blocks[item], scratch_[static_cast<std::size_t>(thread)]);
      });
    }
    context.settle(op_.query);
  }

  std::size_t scratch_bytes() const noexcept override {
    const Scratch& s = scratch_.front();
    return scratch_.size() * sizeof(float) *
           (s.keys.size() + s.panels.size() + s.queries.size() + s.dots.size() + s.largest.size() +
            s.list.size() + 2 * s.best.size() * shape_.chosen);
  }

 private:
  /// One thread's memory; a block's lists are numbered row by row.
  struct Scratch {
    std::vector<float> keys;     ///< [64, dim padded]
    std::vector<float> panels;   ///< [4, dim padded, 16]: the same, as panels
    std::vector<float> queries;  ///< [8 rows, lists, heads, dim padded]
    std::vector<float> dots;     ///< [8 rows, lists, heads, 64]
    std::vector<float> largest;  ///< of the block of keys under way, by list
    std::vector<Best> best;      ///< by list
    std::vector<std::uint32_t> list;
    bool failed[Context::kRowBlock];
  };

  /// A block of rows as a pass over its keys sees it.
  struct Pass {
    const backend::Segment& segment;
    std::uint32_t first;  ///< kv index of the first row
    std::size_t row, rows;
    std::uint32_t end;  ///< of the keys; 0 where every row takes all that it sees
  };

  Pass begin(const Context& context, const RowBlock& block, Scratch& s) const noexcept {
    const backend::Segment& segment = context.step().segments[block.segment];
    Pass pass{segment, segment.past + block.first, std::size_t{segment.first_row} + block.first,
              block.rows, 0};
    for (Best& best : s.best) best.clear();
    std::fill_n(s.failed, block.rows, false);
    std::fill(s.largest.begin(), s.largest.end(), -std::numeric_limits<float>::infinity());
    // Later rows see more, so where the last one takes all, all do.
    const std::uint32_t last = pass.first + block.rows - 1;
    if (!takes_all(rule_, last)) pass.end = candidates(rule_, last);
    if (pass.end > 0) load_queries(context, pass.row, pass.rows, s);
    return pass;
  }

  void select(Context& context, const RowBlock& block, Scratch& s) noexcept {
    const Pass pass = begin(context, block, s);
    float scores[kPiece];
    for (std::uint32_t start = 0; start < pass.end; start += kPiece) {
      const std::uint32_t count = std::min<std::uint32_t>(kPiece, pass.end - start);
      multiply(context, pass, start, count, s.queries.data(), s);
      for (std::size_t i = 0; i < pass.rows; ++i) {
        const std::size_t own = scored(pass, i, start, count);
        for (std::size_t l = 0; own > 0 && !s.failed[i] && l < shape_.lists; ++l) {
          score(context, pass.row + i, dots(s, i, l), own, scores);
          s.failed[i] = !offer(pass, i, l, start, own, scores, s);
        }
      }
    }
    finish(context, pass, s);
  }

  /// The same with the keys shared out: the scores of many keys first, which are then offered in
  /// order.
  void select_together(Context& context, const RowBlock& block) noexcept {
    Scratch& s = scratch_.front();  // of the calling thread; the others read its queries
    const Pass pass = begin(context, block, s);
    const auto place = [this](std::size_t i, std::size_t l) {
      return wave_.scores.data() + (i * shape_.lists + l) * kWaveKeys;
    };
    for (std::uint32_t wave = 0; wave < pass.end; wave += kWaveKeys) {
      const std::uint32_t keys = std::min(kWaveKeys, pass.end - wave);
      context.each((keys + kSharedKeys - 1) / kSharedKeys, pass.rows * keys * op_.query.width,
                   [&](std::size_t item, int thread) {
                     Scratch& own = scratch_[static_cast<std::size_t>(thread)];
                     const auto from = static_cast<std::uint32_t>(item) * kSharedKeys;
                     const std::uint32_t to = std::min(keys, from + kSharedKeys);
                     for (std::uint32_t at = from; at < to; at += kPiece) {
                       const std::uint32_t count = std::min<std::uint32_t>(kPiece, to - at);
                       multiply(context, pass, wave + at, count, s.queries.data(), own);
                       for (std::size_t i = 0; i < pass.rows; ++i) {
                         const std::size_t seen = scored(pass, i, wave + at, count);
                         for (std::size_t l = 0; seen > 0 && l < shape_.lists; ++l) {
                           score(context, pass.row + i, dots(own, i, l), seen, place(i, l) + at);
                         }
                       }
                     }
                   });
      for (std::size_t i = 0; i < pass.rows; ++i) {
        const std::size_t seen = scored(pass, i, wave, keys);
        for (std::size_t l = 0; seen > 0 && !s.failed[i] && l < shape_.lists; ++l) {
          s.failed[i] = !offer(pass, i, l, wave, seen, place(i, l), s);
        }
      }
    }
    finish(context, pass, s);
  }

  void finish(Context& context, const Pass& pass, Scratch& s) const noexcept {
    for (std::size_t i = 0; i < pass.rows; ++i) {
      write(context, pass.row + i, i, static_cast<std::uint32_t>(pass.first + i), s);
    }
  }

  /// The products of all rows' queries with `count` keys from `start` on, at most 64.
  void multiply(Context& context, const Pass& pass, std::uint32_t start, std::size_t count,
                const float* queries, Scratch& s) const noexcept {
    context.decode_rows(op_.keys, *pass.segment.sequence, start, count, 0, shape_.dim,
                        s.keys.data(), width_);
    for (std::size_t j = 0; j < count; j += kPanelRows) {
      context.kernels.transpose(s.keys.data() + j * width_, width_, width_,
                                s.panels.data() + j * width_);
    }
    ProductJob job;
    job.panel = s.panels.data();
    job.k_stride = kPanelRows;
    job.panel_stride = kPanelRows * width_;
    job.k = width_;
    job.columns = padded(count);
    job.x = queries;
    job.x_stride = width_;
    job.rows = pass.rows * shape_.lists * shape_.heads;
    job.out = s.dots.data();
    job.out_stride = kPiece;
    context.kernels.product(job);
  }
  /// How many of the keys [start, start + count) row `i` scores: all that it sees, unless it takes
  /// them anyway.
  std::size_t scored(const Pass& pass, std::size_t i, std::uint32_t start,
                     std::size_t count) const noexcept {
    const auto position = static_cast<std::uint32_t>(pass.first + i);
    const std::uint32_t visible = candidates(rule_, position);
    if (takes_all(rule_, position) || visible <= start) return 0;
    return std::min<std::size_t>(count, visible - start);
  }
  /// The products [heads, 64] of one list of row `i`.
  const float* dots(const Scratch& s, std::size_t i, std::size_t list) const noexcept {
    return s.dots.data() + (i * shape_.lists + list) * shape_.heads * kPiece;
  }

  void load_queries(const Context& context, std::size_t row, std::size_t rows,
                    Scratch& s) const noexcept {
    const std::size_t heads = shape_.lists * shape_.heads;
    for (std::size_t i = 0; i < rows * heads; ++i) {
      std::copy_n(context.arena.row(op_.query, row + i / heads) + i % heads * shape_.dim,
                  shape_.dim, s.queries.data() + i * width_);
    }
  }

  /// The scores of `count` keys, at most 64, for one list of a row, from its heads' products.
  void score(const Context& context, std::size_t row, const float* dots, std::size_t count,
             float* out) const noexcept {
    if constexpr (std::is_same_v<Rule, MsaSpec>) {
      std::copy_n(dots, count, out);
    } else {
      const float head_scale = 1.f / std::sqrt(static_cast<float>(shape_.heads));
      const float dot_scale = 1.f / std::sqrt(static_cast<float>(shape_.dim));
      const float* const weights = context.arena.row(op_.weights, row);
      std::fill_n(out, count, 0.f);
      for (std::size_t h = 0; h < shape_.heads; ++h, dots += kPiece) {
        const float weight = weights[h] * head_scale;
        for (std::size_t j = 0; j < count; ++j) {
          const float dot = dots[j] * dot_scale;
          out[j] += weight * (dot < 0.f ? 0.f : dot);  // NaN stays
        }
      }
    }
  }

  /// Offers the scores of the keys from `start` on to a list of row `i`; false if one is not
  /// finite.
  bool offer(const Pass& pass, std::size_t i, std::size_t list, std::uint32_t start,
             std::size_t count, const float* scores, Scratch& s) const noexcept {
    const std::size_t at = i * shape_.lists + list;
    if constexpr (std::is_same_v<Rule, MsaSpec>) {
      return offer_blocks(scores, static_cast<std::uint32_t>(pass.first + i), start, count,
                          s.largest[at], s.best[at]);
    } else {
      for (std::size_t j = 0; j < count; ++j) {
        if (!std::isfinite(scores[j])) return false;
        s.best[at].offer(scores[j], start + static_cast<std::uint32_t>(j));
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
  std::size_t width_;   ///< of an index query and key, padded
  std::size_t stride_;  ///< floats of one list: its length and its indices
  WaveScores& wave_;
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
