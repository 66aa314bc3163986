// SPDX-License-Identifier: Apache-2.0
// The k best of a row of scores under one total order: score descending, index ascending. Whoever
// chooses by score (experts, tokens, blocks, compressed entries) chooses here, so that ties fall
// the same way everywhere. -0 counts as +0; -infinity is never chosen; +infinity is a choice that
// was forced beforehand; NaN is no score and is reported. Rules: docs/contract.md, "Selection".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lemma::algorithm {

enum class TopkOrder : std::uint8_t {
  kRank,       ///< best first: the slots of experts
  kAscending,  ///< by index: the keys that attention sums over
};

/// Whether every score may be compared: no NaN and no +infinity. For scores that were computed and
/// hold no forced choices yet.
bool comparable(std::span<const float> scores) noexcept;

/// Writes the indices of the min(k, candidates) best scores to the front of `out` and returns how
/// many; candidates are all scores but -infinity. `out` holds at least min(k, scores.size())
/// elements. Nothing, with `out` unspecified, if a score is NaN. Allocates nothing.
[[nodiscard]] std::optional<std::size_t> topk(std::span<const float> scores, std::size_t k,
                                              TopkOrder order,
                                              std::span<std::uint32_t> out) noexcept;

}  // namespace lemma::algorithm
