// SPDX-License-Identifier: Apache-2.0
// Attention with a visible range per row and no causal rule of its own: blocks of a draft model,
// of an image, of a denoiser. Keys and values may lie in several segments, which count as one
// sequence. The scores and sums are those of causal attention. Formulas: docs/contract.md,
// "Visible ranges".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "algorithm/attention/gqa.hpp"

namespace lemma::algorithm {

struct BlockSpec {
  GqaSpec heads;  ///< neither window nor ALiBi nor temperature: they follow a causal position

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  friend bool operator==(const BlockSpec&, const BlockSpec&) = default;
};

/// Throws kUsage naming the row unless there is one range per row, none empty and none beyond
/// `kv_rows`. Ranges may overlap, or not, in any order.
void check_ranges(std::span<const VisibleRange> ranges, std::uint32_t rows, std::uint32_t kv_rows);

/// Consecutive rows of one KV head: kv indices from the sum of the rows before on. The readers see
/// indices from 0.
struct RowSegment {
  std::uint32_t rows = 0;
  RowReader key, value;
};

/// Attention of one query head: `query` [d] over `range` of the rows of all segments, in order,
/// into `out` [d_v]; `sink` joins the softmax if not null.
void attend_block(const BlockSpec& spec, std::span<const float> query, VisibleRange range,
                  std::span<const RowSegment> segments, const float* sink,
                  std::span<float> out) noexcept;

/// What the rows of a draft block see, which stands after `context` committed tokens.
enum class DraftVisibility : std::uint8_t {
  kBlock,     ///< all from context - W on: the window's left edge is the block's
  kCausal,    ///< the same, up to the row itself
  kDistance,  ///< |p - j| < W on both sides: each row has its own left edge
};

/// One range per row of a block of `rows`; `window` is W, 0 for none.
std::vector<VisibleRange> draft_ranges(DraftVisibility visibility, std::uint32_t context,
                                       std::uint32_t rows, std::uint32_t window);

}  // namespace lemma::algorithm
