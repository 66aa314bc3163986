// SPDX-License-Identifier: Apache-2.0
// Compressed sparse attention (DeepSeek V4): one row per token is key and value of all heads. A
// query sees the rows of a window as they are, and of the rest entries that stand for `ratio`
// tokens each: all of them, or those that an indexer chooses. Rows carry a rotation into the
// output, which is turned back at the query. A layer without compression sees its window only.
// Formulas: docs/contract.md, "Compressed sparse attention".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "algorithm/attention/compressor.hpp"
#include "algorithm/attention/indexer.hpp"
#include "algorithm/attention/lists.hpp"
#include "algorithm/rope.hpp"
#include "algorithm/slot.hpp"

namespace lemma::algorithm {

/// Which visible entries a query attends to.
enum class EntrySelection : std::uint8_t { kAll, kIndexer };

/// y of group g = W_g x of group g: a block-diagonal map, the first half of the output projection.
struct GroupedLinearSpec {
  std::uint32_t groups = 0;
  std::uint32_t in = 0, out = 0;  ///< elements per group
  bool shared = false;            ///< all groups have the same W

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  friend bool operator==(const GroupedLinearSpec&, const GroupedLinearSpec&) = default;
};

/// `weight` [groups * out, in], or [out, in] where it is shared, `x` [groups * in], `y` [groups *
/// out]; plain ascending sums.
void grouped_linear(const GroupedLinearSpec& spec, std::span<const float> weight,
                    std::span<const float> x, std::span<float> y) noexcept;

struct CompressedSparseSpec {
  std::uint32_t heads = 0;     ///< H query heads over one row per token
  std::uint32_t head_dim = 0;  ///< d of queries, rows and entries
  std::uint32_t q_rank = 0;    ///< width of the query latent, which index queries come from too
  std::uint32_t window = 0;    ///< W: a query sees itself and the W - 1 rows before it
  float scale = 0.f;           ///< usually d^-0.5
  float norm_eps = 1e-6f;      ///< of the norms of latent, queries, rows and entries
  bool sinks = true;           ///< one learned score per head joins the softmax
  /// Turns the last dims of queries, rows, entries and index heads. Layers that compress have
  /// another base and scaling than those that do not.
  RopeSpec rope;
  std::uint32_t ratio = 0;  ///< tokens per entry; 0: the window only
  bool overlap = false;     ///< entries also pool the tokens before their own; ratio 4 only
  EntrySelection selection = EntrySelection::kAll;
  IndexerSpec indexer;              ///< for kIndexer, ratio 4 only; top_k counts entries
  std::uint32_t output_groups = 0;  ///< divides H: neighbouring heads are projected together
  std::uint32_t output_rank = 0;    ///< elements that a group is projected to

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  /// Heads, scale and window as causal attention knows them.
  GqaSpec core() const noexcept;
  CompressorSpec entries() const noexcept { return {ratio, head_dim, overlap}; }
  CompressorSpec index_entries() const noexcept { return {ratio, indexer.dim, overlap}; }
  GroupedLinearSpec output() const noexcept {
    return {output_groups, heads / output_groups * head_dim, output_rank, false};
  }
  /// Entries that the query at `position` may see: those whose last token is not after it.
  std::uint32_t visible_entries(std::uint32_t position) const noexcept {
    return ratio != 0 ? closed_rows(position + 1, ratio) : 0;
  }
  /// Window rows; with compression entries and their frontier; with an indexer its entries and
  /// their frontier.
  Slots slots() const;
  friend bool operator==(const CompressedSparseSpec&, const CompressedSparseSpec&) = default;
};

/// Makes a pooled row, in place, the entry `index`: rms norm with `weight`, then the rotation of
/// its first token. For entries and index entries alike.
void finish_entry(const CompressedSparseSpec& spec, const RopeTable& rope,
                  std::span<const float> weight, std::uint32_t index,
                  std::span<float> row) noexcept;

/// The entries that the query at kv index `position` attends to, ascending, to the front of
/// `chosen` [top_k]; returns how many, 0 while none is visible. Needs an indexer; `scores`
/// [visible_entries(position)] is scratch. Nothing if a score is not finite.
[[nodiscard]] std::optional<std::size_t> select_entries(
    const CompressedSparseSpec& spec, std::span<const float> query, std::span<const float> weights,
    std::uint32_t position, const RowReader& index_entry, std::span<float> scores,
    std::span<std::uint32_t> chosen) noexcept;

/// Attention of one query head: `query` [d] at `position` over its window of rows and then over
/// `entries`, in this order, into `out` [d], which still has to be turned back. A token may count
/// twice, as a row and within an entry. `sink` joins the softmax if not null.
void attend_compressed(const CompressedSparseSpec& spec, std::span<const float> query,
                       std::uint32_t position, const RowReader& row, const RowIndices& entries,
                       const RowReader& entry, const float* sink, std::span<float> out) noexcept;

}  // namespace lemma::algorithm
