// SPDX-License-Identifier: Apache-2.0
// Compression of `ratio` tokens into one row: per channel a softmax of gates over the tokens of a
// window, and the mean of their values by it. With overlap a window also pools the window before
// it. What is pending lives in a frontier, an explicit block of floats that the caller owns; so any
// way of cutting a text into chunks pools the same numbers in the same order. k-pool indexers and
// compressed sparse attention share it. Formulas: docs/contract.md, "Compressed rows".
//
//   frontier block, W = width, ch = W, or 2 W with overlap; gates include their bias:
//   [pending values: ratio x ch][pending gates: ratio x ch]
//   with overlap also, of the last closed window: [low values: ratio x W][low gates: ratio x W]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "algorithm/slot.hpp"

namespace lemma::algorithm {

struct CompressorSpec {
  std::uint32_t ratio = 0;  ///< tokens per row, at least 2
  std::uint32_t width = 0;  ///< W of a compressed row
  bool overlap = false;     ///< a row also pools the low channels of the window before

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  /// Floats of a token's value and of its gate.
  std::uint32_t channels() const noexcept { return overlap ? 2 * width : width; }
  /// Floats of the frontier block.
  std::size_t frontier_size() const noexcept;
  /// The rows and the frontier.
  Slots slots() const;
  friend bool operator==(const CompressorSpec&, const CompressorSpec&) = default;
};

/// Where a sequence's compressor stands. A new sequence has `next` 0 and a block of any content.
struct Frontier {
  std::uint32_t next = 0;  ///< kv index of the token that must come next
  std::span<float> block;  ///< [frontier_size()]
};

/// Rows that are whole after the tokens [0, length), and so visible to the query at length - 1.
constexpr std::uint32_t closed_rows(std::uint32_t length, std::uint32_t ratio) noexcept {
  return length / ratio;
}
/// kv index of the first token of row i: where the row is turned.
constexpr std::uint32_t row_position(std::uint32_t i, std::uint32_t ratio) noexcept {
  return i * ratio;
}

enum class CompressStep : std::uint8_t {
  kPending,  ///< the token was taken in, its window is still open
  kClosed,   ///< the token closed window position / ratio, whose pooled row was written
  kRefused,  ///< the position is not the next one; nothing was changed
};

/// Takes in the token at kv index `position`: `value` and `gate` [channels()], `bias` [ratio,
/// channels()] added to gates by place in the window. A window that closes is pooled into `pooled`
/// [width], before any norm or rotation.
[[nodiscard]] CompressStep compress(const CompressorSpec& spec, std::span<const float> bias,
                                    std::uint32_t position, std::span<const float> value,
                                    std::span<const float> gate, Frontier& frontier,
                                    std::span<float> pooled) noexcept;

}  // namespace lemma::algorithm
