// SPDX-License-Identifier: Apache-2.0
// Block selection for grouped-query attention (MiniMax sparse attention): each KV group chooses
// blocks of keys by the best of its index scores, and its query heads attend to the visible keys of
// those blocks. Blocks are anchored at kv index 0, so no cut of a text moves them. Formulas:
// docs/contract.md, "Selection".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "algorithm/attention/gqa.hpp"
#include "algorithm/slot.hpp"

namespace lemma::algorithm {

struct MsaSpec {
  GqaSpec heads;                   ///< full attention: no window
  std::uint32_t index_heads = 0;   ///< one per KV group: equals heads.kv_heads
  std::uint32_t index_dim = 0;     ///< dx of an index query head and of the one shared index key
  std::uint32_t block_size = 0;    ///< keys per block
  std::uint32_t top_k = 0;         ///< blocks per group, the forced ones among them
  std::uint32_t init_blocks = 0;   ///< so many first blocks are always chosen
  std::uint32_t local_blocks = 1;  ///< and so many up to the query's own

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  /// The longest list of keys: that of top_k whole blocks.
  std::uint32_t list_limit() const noexcept { return top_k * block_size; }
  /// Blocks that hold a key which the query at `position` sees; its own is the last.
  std::uint32_t visible_blocks(std::uint32_t position) const noexcept {
    return position / block_size + 1;
  }
  /// Keys, values and index keys.
  Slots slots() const;
  friend bool operator==(const MsaSpec&, const MsaSpec&) = default;
};

/// The blocks of one KV group for the query at kv index `position`, ascending, to the front of
/// `blocks` [top_k]; returns how many, never 0. `query` [dx] is the group's index query, `scores`
/// [visible_blocks(position)] is scratch. Where all are chosen no score is computed. Nothing if a
/// score is not finite.
[[nodiscard]] std::optional<std::size_t> select_blocks(
    const MsaSpec& spec, std::span<const float> query, std::uint32_t position,
    const RowReader& index_key, std::span<float> scores, std::span<std::uint32_t> blocks) noexcept;

/// The keys of `blocks` (ascending) that the query at `position` sees, ascending, to the front of
/// `keys` [list_limit()]; returns how many.
std::size_t expand_blocks(const MsaSpec& spec, std::span<const std::uint32_t> blocks,
                          std::uint32_t position, std::span<std::uint32_t> keys) noexcept;

/// The same as a predicate: whether key `j` is visible through `blocks`.
bool sees_key(const MsaSpec& spec, std::span<const std::uint32_t> blocks, std::uint32_t position,
              std::uint32_t j) noexcept;

}  // namespace lemma::algorithm
