// SPDX-License-Identifier: Apache-2.0
// Pieces: attention of a block of queries over the rows of a source, one thread's memory and
// arithmetic. Every form of attention runs on it: heads, latents, compressed entries.
//
// A source is cut at absolute multiples of 64 rows (pieces) and of 512 rows (spans), whatever the
// page size, the phase, the window or the list; of a piece a query sees one run of rows, or several
// where a list leaves some out. Within a span a softmax runs over the pieces in ascending order
// (see SoftenJob); each span begins anew and gives (largest score M, mass l, weighted values o),
// and spans are merged in ascending order, sources one after the other:
//
//   M' = max(M, m);  o = o e^(M - M') + p e^(m - M');  l = l e^(M - M') + s e^(m - M')
//
// So spans can be computed by different threads. Which queries share a block never shows: a score
// is one chain over the elements of its query and key, a weighted sum takes a query's own rows in
// ascending order. A list that leaves nothing out gives the bits of the range, and rows that are
// read where they lie those of decoded ones.
//
// Entered rows may be attended to in whole numbers (kernels/attention_whole.hpp): keys and values
// of a piece become codes once for all queries, and a query takes whole pieces, in which what it
// does not see weighs zero. Scores, softmax and the merging of spans are as above.
//
//   pieces.begin(queries);
//   pieces.attend(kernels, rule, ranges, decode);      // or a list, for a block of one row
//   pieces.finish(q, sink, out);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "algorithm/attention/gqa.hpp"
#include "backend/cpu/kernels/attention_whole.hpp"
#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/weight.hpp"
#include "base/function_ref.hpp"

namespace lemma::cpu {

/// Rows of a source whose softmax begins anew: what different threads may take.
inline constexpr std::size_t kSpan = 8 * kPiece;

/// `n` rounded up to whole vectors of any width.
constexpr std::size_t padded(std::size_t n) noexcept {
  return (n + kPanelRows - 1) / kPanelRows * kPanelRows;
}

/// How a product of query and key becomes a score.
struct ScoreRule {
  float scale = 1.f, softcap = 0.f;
  std::span<const float> slopes = {};  ///< ALiBi's, by group and head of the block; or empty
  std::uint32_t position = 0;          ///< kv index of the block's first query
};

class Pieces {
 public:
  /// Rows of a piece of a source that can be read where they lie: 16-bit elements, at equal
  /// distances. Null: they were decoded.
  struct InPlace {
    const std::byte* keys = nullptr;    ///< of place 0
    const std::byte* values = nullptr;  ///< of place 0
    /// To be asked for meanwhile: by the transposition, a row for each key, or by the products, 64
    /// rows of values and all lines of `key_lines`, one after the other.
    Ahead next_keys, next_values;
    const std::byte* key_lines = nullptr;
    std::size_t key_stride = 0, value_stride = 0;  ///< elements
    std::size_t format = 0;                        ///< index of kernels such as transpose16
  };
  /// Writes rows [first, first + count) of the source, as group `group` of the queries sees it, to
  /// key(place) and the places after it, and where values are apart to value(place) and after; or
  /// says where they lie.
  using Decode = base::FunctionRef<InPlace(std::uint32_t first, std::size_t count,
                                           std::size_t place, std::size_t group)>;

  /// Memory for up to `queries` queries. With value_dim <= key_dim and `shared`, a value is the
  /// front of its key. `whole`: how entered rows are attended to; null: as generated ones.
  Pieces(const WholeAttention* whole, std::size_t queries, std::size_t key_dim,
         std::size_t value_dim, bool shared);

  std::size_t key_width() const noexcept { return key_width_; }    ///< padded
  std::size_t key_stride() const noexcept { return key_stride_; }  ///< floats between two places
  std::size_t value_stride() const noexcept { return value_stride_; }
  float* key(std::size_t place) noexcept { return keys_.data() + place * key_stride_; }
  float* value(std::size_t place) noexcept { return values_.data() + place * value_stride_; }

  /// Queries [groups, rows, heads] of a block, padded with zeros to key_width(). Query q = (group *
  /// rows + row) * heads + head. A group meets keys and values of its own, those of a KV head; all
  /// groups take a piece before any takes the next, so that rows of the state are read whole.
  struct Queries {
    const float* first = nullptr;
    std::size_t head_stride = 0, row_stride = 0;
    std::size_t heads = 0, rows = 0;
    std::size_t groups = 1, group_stride = 0;
    std::size_t of_group() const noexcept { return rows * heads; }
    std::size_t all() const noexcept { return groups * of_group(); }
  };
  /// `entered`: of entered rows.
  void begin(const Queries& queries, bool entered) noexcept;
  /// Forgets what was attended to; the queries stay.
  void begin_again() noexcept;
  /// Goes on over a source of which row i sees ranges[i]. Begins and ends ascend.
  void attend(const KernelTable& kernels, const ScoreRule& rule,
              std::span<const algorithm::VisibleRange> ranges, Decode decode) noexcept;
  /// The same for one group of one row that sees a list, ascending.
  void attend(const KernelTable& kernels, const ScoreRule& rule,
              std::span<const std::uint32_t> list, Decode decode) noexcept;
  /// The mean of the values of query `q` [value_dim], after `sink`, if not null, has joined.
  void finish(std::size_t q, const float* sink, float* out) const noexcept;

  /// What attending to one span gave the queries of a group, for another thread to merge: floats
  /// of `queries` queries.
  std::size_t part_floats(std::size_t queries) const noexcept {
    return queries * (2 + value_width_);
  }
  void save(std::size_t group, float* part) const noexcept;
  void merge(std::size_t group, const float* part) noexcept;

  std::size_t bytes() const noexcept;

 private:
  /// Half-open range of places in a piece.
  struct Run {
    std::size_t begin = 0, end = 0;
    friend bool operator==(const Run&, const Run&) = default;
    bool empty() const noexcept { return begin >= end; }
  };
  using Runs = std::span<const Run>;

  /// The first query of a row of the running group.
  std::size_t query_of(std::size_t row) const noexcept {
    return group_ * queries_.of_group() + row * queries_.heads;
  }

  static Run within(algorithm::VisibleRange range, std::size_t start) noexcept;
  void attend_piece(const KernelTable& kernels, const ScoreRule& rule,
                    std::span<const algorithm::VisibleRange> ranges, std::size_t start) noexcept;
  void attend_runs(const KernelTable& kernels, const ScoreRule& rule, Runs runs,
                   std::size_t start) noexcept;
  void transpose_keys(const KernelTable& kernels, Run places) noexcept;
  void begin_span(std::size_t span) noexcept;
  void end_span() noexcept;
  void multiply_keys(const KernelTable& kernels, std::size_t row, std::size_t rows,
                     Run places) noexcept;
  void soften(const KernelTable& kernels, const ScoreRule& rule, std::size_t row, Runs runs,
              std::size_t start) noexcept;
  void add_values(const KernelTable& kernels, std::size_t row, std::size_t rows, Run run) noexcept;
  // The same in whole numbers.
  void make_codes(const WholeAttention& kernels, std::size_t queries);
  void round_queries() noexcept;
  void take_codes(Runs runs) noexcept;
  void multiply_codes(std::size_t row, std::size_t rows, Run places) noexcept;
  void add_coded_values(std::size_t row, std::size_t rows) noexcept;
  void merge(std::size_t q, float largest, float mass, const float* sums) noexcept;

  /// What attention in whole numbers needs; see WholeAttention for the layouts.
  struct Codes {
    const WholeAttention* kernels = nullptr;  ///< null: there are none
    bool used = false;                        ///< by the running block
    std::size_t pairs = 0, blocks = 0;        ///< of a query or key, and its scales
    std::vector<std::uint32_t> queries;       ///< [Q, pairs]
    std::vector<float> query_scales;          ///< [Q, blocks]
    std::vector<std::uint32_t> keys;          ///< [4, pairs, 16]
    std::vector<float> key_scales;            ///< [blocks, 64]
    std::vector<std::uint32_t> weights;       ///< [Q, 32]
    std::vector<float> weight_scales;         ///< [Q]
    std::vector<std::uint32_t> values;        ///< [32, value_width]
    std::vector<float> value_scales;          ///< [64]
    std::size_t bytes() const noexcept;
  };

  std::size_t key_dim_, key_width_, value_width_, value_dim_, key_stride_, value_stride_;
  bool shared_;
  Queries queries_;                    ///< of the running block
  std::size_t group_ = 0;              ///< of the queries that attend
  std::size_t span_ = 0;               ///< under way, counted from 1; 0: none
  InPlace in_place_;                   ///< of the piece under way
  std::vector<float> keys_;            ///< [64, key_stride]
  std::vector<float> panels_;          ///< [4, key_width, 16]: the same, as panels
  std::vector<float> values_;          ///< [64, value_stride], unless they are shared
  std::vector<float> weights_;         ///< [Q, 64]: products, scores, then their exponentials
  std::vector<float> parts_;           ///< [Q, value_width]: the span's weighted values
  std::vector<float> part_largest_;    ///< [Q]
  std::vector<float> part_mass_;       ///< [Q, 16]
  std::vector<float> sums_;            ///< [Q, value_width]: merged so far
  std::vector<float> largest_, mass_;  ///< [Q]
  std::array<std::int32_t, kPiece> visible_;
  Codes codes_;
};

/// Attention of entered rows in whole numbers, where kernels have it and any weight is not F32: a
/// plan of F32 alone has one arithmetic for both classes of tokens.
const WholeAttention* whole_attention(const KernelTable& kernels,
                                      const std::deque<Weight>& weights) noexcept;

/// Reads a list of a selection tensor, its length and then its indices, into `out`: nothing unless
/// it has at most `limit` whole numbers that ascend and lie below `end`.
std::span<const std::uint32_t> read_list(const float* list, std::size_t limit, std::uint32_t end,
                                         std::vector<std::uint32_t>& out) noexcept;

}  // namespace lemma::cpu
