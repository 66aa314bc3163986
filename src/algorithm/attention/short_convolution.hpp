// SPDX-License-Identifier: Apache-2.0
// The short causal convolution of recurrent mixers: each channel on its own is a weighted sum of
// its last few values, then SiLU. What lies before the chunk comes from an explicit history, which
// the caller owns; so a text gives the same bits however it is cut.
// Formulas: docs/contract.md, "Short convolution".
//
//   history block, oldest row first, rows as they were projected: [kernel - 1][channels]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "algorithm/slot.hpp"

namespace lemma::algorithm {

struct ShortConvolutionSpec {
  std::uint32_t channels = 0;
  std::uint32_t kernel = 0;  ///< C: the row itself and the C - 1 before it

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  /// Floats of the history block; 0 for a kernel of one.
  std::size_t history_size() const noexcept { return std::size_t(kernel - 1) * channels; }
  /// The history, or no slot for a kernel of one.
  Slots slots() const;
  friend bool operator==(const ShortConvolutionSpec&, const ShortConvolutionSpec&) = default;
};

/// out[c] = silu(sum over i, ascending, of weight[c][i] * row C - 1 - i before this one [c]), so
/// weight 0 belongs to the oldest row; `weight` [channels, kernel]. Then `row` [channels] becomes
/// the newest of `history`, as it is and not as it comes out. A new sequence has a history of
/// zeros. `out` may be `row`.
void convolve(const ShortConvolutionSpec& spec, std::span<const float> weight,
              std::span<const float> row, std::span<float> history, std::span<float> out) noexcept;

}  // namespace lemma::algorithm
