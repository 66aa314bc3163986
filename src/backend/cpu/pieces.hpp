// SPDX-License-Identifier: Apache-2.0
// Pieces: attention of a block of queries over the rows of a source, one thread's memory and
// arithmetic. Every form of attention runs on it: heads, latents, compressed entries.
//
// A source is cut at absolute multiples of 64 rows, whatever the page size, the phase, the window
// or the list; of a piece a query sees one run of rows, or several where a list leaves some out. A
// piece gives (largest score, sum of weights, weighted values); pieces are merged in ascending
// order, and sources one after the other:
//
//   M' = max(M, m);  o = o e^(M - M') + p e^(m - M');  l = l e^(M - M') + s e^(m - M')
//
// Which queries share a block never shows: a score depends on its query and key alone, and a
// query's weighted sum takes its own rows in ascending order. A list that leaves nothing out gives
// the bits of the range.
//
//   pieces.begin(queries);
//   pieces.attend(kernels, rule, ranges, decode);      // or a list, for a block of one row
//   pieces.finish(q, sink, out);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "algorithm/attention/gqa.hpp"
#include "backend/cpu/kernels/kernels.hpp"
#include "base/function_ref.hpp"

namespace lemma::cpu {

/// `n` rounded up to whole vectors of any width: what the scores kernel asks of rows.
constexpr std::size_t padded(std::size_t n) noexcept {
  return (n + kPanelRows - 1) / kPanelRows * kPanelRows;
}

/// How a product of query and key becomes a score.
struct ScoreRule {
  float scale = 1.f, softcap = 0.f;
  std::span<const float> slopes = {};  ///< ALiBi's, by head of the block; or empty
  std::uint32_t position = 0;          ///< kv index of the block's first query
};

class Pieces {
 public:
  /// Writes row `index` of the source to key(place), and value(place) where values are apart.
  using Decode = base::FunctionRef<void(std::uint32_t index, std::size_t place)>;

  /// Memory for up to `queries` queries. With value_dim <= key_dim and `shared`, a value is the
  /// front of its key.
  Pieces(std::size_t queries, std::size_t key_dim, std::size_t value_dim, bool shared);

  std::size_t key_width() const noexcept { return key_width_; }  ///< padded
  float* key(std::size_t place) noexcept { return keys_.data() + place * key_width_; }
  float* value(std::size_t place) noexcept { return values_.data() + place * value_width_; }

  /// Queries [rows, heads] of a block, padded with zeros to key_width(). Query q = row * heads +
  /// head.
  struct Queries {
    const float* first = nullptr;
    std::size_t head_stride = 0, row_stride = 0;
    std::size_t heads = 0, rows = 0;
  };
  void begin(const Queries& queries) noexcept;
  /// Goes on over a source of which row i sees ranges[i]. Begins and ends ascend.
  void attend(const KernelTable& kernels, const ScoreRule& rule,
              std::span<const algorithm::VisibleRange> ranges, Decode decode) noexcept;
  /// The same for a block of one row that sees a list, ascending.
  void attend(const KernelTable& kernels, const ScoreRule& rule,
              std::span<const std::uint32_t> list, Decode decode) noexcept;
  /// The mean of the values of query `q` [value_dim], after `sink`, if not null, has joined.
  void finish(std::size_t q, const float* sink, float* out) const noexcept;

  std::size_t bytes() const noexcept;

 private:
  /// Half-open range of places in a piece.
  struct Run {
    std::size_t begin = 0, end = 0;
    friend bool operator==(const Run&, const Run&) = default;
    bool empty() const noexcept { return begin >= end; }
  };
  using Runs = std::span<const Run>;

  static Run within(algorithm::VisibleRange range, std::size_t start) noexcept;
  void weigh(const KernelTable& kernels, const ScoreRule& rule, std::size_t row, Runs runs,
             std::size_t start) noexcept;
  void weigh_query(const KernelTable& kernels, const ScoreRule& rule, std::size_t row,
                   std::size_t head, Runs runs, std::size_t start) noexcept;
  void add_values(const KernelTable& kernels, std::size_t q, std::size_t count, Runs runs) noexcept;
  void merge(const KernelTable& kernels) noexcept;

  std::size_t key_width_, value_width_, value_dim_;
  bool shared_;
  Queries queries_;             ///< of the running block
  std::vector<float> keys_;     ///< [64, key_width]
  std::vector<float> values_;   ///< [64, value_width], unless they are shared
  std::vector<float> weights_;  ///< [Q, 64]: scores, then their exponentials
  std::vector<float> parts_;    ///< [Q, value_width]: the piece's weighted values
  std::vector<float> sums_;     ///< [Q, value_width]: merged so far
  std::vector<float> part_largest_, part_mass_, largest_, mass_;  ///< [Q]
};

/// Reads a list of a selection tensor, its length and then its indices, into `out`: nothing unless
/// it has at most `limit` whole numbers that ascend and lie below `end`.
std::span<const std::uint32_t> read_list(const float* list, std::size_t limit, std::uint32_t end,
                                         std::vector<std::uint32_t>& out) noexcept;

}  // namespace lemma::cpu
