// SPDX-License-Identifier: Apache-2.0
// Token selection for latent attention (DeepSeek sparse attention): an indexer chooses the tokens
// of a query, and latent attention runs over that list. Layers may reuse the list of the last layer
// that chose. With k-pool, pools of consecutive tokens are scored and chosen whole. Lists ascend
// and have their true length. Formulas: docs/contract.md, "Selection".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "algorithm/attention/compressor.hpp"
#include "algorithm/attention/indexer.hpp"
#include "algorithm/attention/mla.hpp"
#include "algorithm/slot.hpp"

namespace lemma::algorithm {

/// Whether a layer runs an indexer or takes the list of the nearest layer before it that does.
enum class SelectionMode : std::uint8_t { kFull, kShared };

struct DsaSpec {
  MlaSpec attention;
  SelectionMode mode = SelectionMode::kFull;
  IndexerSpec indexer;              ///< top_k counts tokens, with k-pool too
  float key_norm_eps = 1e-6f;       ///< of the layer norm on index keys; some files have 0
  std::uint32_t kpool = 0;          ///< 0: tokens are scored; else tokens per pool, at least 2
  bool always_select_tail = false;  ///< with k-pool: tokens of no whole pool are chosen too

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  /// The longest list: top_k, and with a tail up to kpool - 1 more.
  std::uint32_t list_limit() const noexcept;
  /// How index keys become pools: the gates' softmax is over the tokens of one pool.
  CompressorSpec pools() const noexcept { return {.ratio = kpool, .width = indexer.dim}; }
  /// Latent attention's slots; where an indexer runs also index keys, or pools and their frontier.
  Slots slots() const;
  friend bool operator==(const DsaSpec&, const DsaSpec&) = default;
};

/// The tokens of the query at kv index `position`, ascending, to the front of `tokens`
/// [list_limit()]; returns how many, never 0. `key` gives the index key of a token, or with k-pool
/// of a whole pool; `scores` [position + 1] is scratch. Nothing if a score is not finite.
[[nodiscard]] std::optional<std::size_t> select_tokens(const DsaSpec& spec,
                                                       std::span<const float> query,
                                                       std::span<const float> weights,
                                                       std::uint32_t position, const RowReader& key,
                                                       std::span<float> scores,
                                                       std::span<std::uint32_t> tokens) noexcept;

/// Layer i runs its indexer iff max(i - offset + 1, 0) % frequency == 0. Throws kUnsupported if the
/// frequency is 0 or the first layer would have no list.
std::vector<SelectionMode> selection_schedule(std::uint32_t layers, std::uint32_t frequency,
                                              std::uint32_t offset);
/// The same from a word of F and S, one letter per layer.
std::vector<SelectionMode> selection_schedule(std::uint32_t layers, std::string_view pattern);
/// The layer whose list `layer` uses: itself, or the nearest full one before it.
std::uint32_t selection_source(std::span<const SelectionMode> schedule,
                               std::uint32_t layer) noexcept;

}  // namespace lemma::algorithm
