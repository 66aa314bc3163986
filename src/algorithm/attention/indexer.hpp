// SPDX-License-Identifier: Apache-2.0
// The learned indexer that sparse attention chooses with: several small heads score every
// candidate row, and the best are attended to. DSA scores tokens or pools of tokens, compressed
// sparse attention scores its entries; the rule is one. Projections, the key's norm and rotation
// are other operations. Formulas: docs/contract.md, "Selection".
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "algorithm/attention/gqa.hpp"

namespace lemma::algorithm {

struct IndexerSpec {
  std::uint32_t heads = 0;     ///< Hi
  std::uint32_t dim = 0;       ///< Di of a query head and of the one key that all heads share
  std::uint32_t rope_dim = 0;  ///< dims that turn: even, at most Di; 0 for none
  std::uint32_t top_k = 0;     ///< rows that are attended to, if so many are visible

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  friend bool operator==(const IndexerSpec&, const IndexerSpec&) = default;
};

/// sum over heads, ascending, of weights[h] Hi^-0.5 max(0, (query_h . key) Di^-0.5): `query`
/// [Hi * Di], `weights` [Hi] as they were projected, `key` [Di]. Each head is cut off at zero
/// before it is weighed; weights may be negative.
float index_score(const IndexerSpec& spec, std::span<const float> query,
                  std::span<const float> weights, std::span<const float> key) noexcept;

/// The min(k, candidates) best of the rows [0, candidates), ascending, to the front of `chosen`;
/// returns how many. `scores` [candidates] is scratch. Where all are chosen no score is computed.
/// Nothing if a score is not finite.
[[nodiscard]] std::optional<std::size_t> select_rows(const IndexerSpec& spec,
                                                     std::span<const float> query,
                                                     std::span<const float> weights,
                                                     std::uint32_t candidates, std::uint32_t k,
                                                     const RowReader& key, std::span<float> scores,
                                                     std::span<std::uint32_t> chosen) noexcept;

}  // namespace lemma::algorithm
