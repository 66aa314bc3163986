// SPDX-License-Identifier: Apache-2.0
// Slots: what a token mixer's spec says a sequence must remember in one layer. A spec declares a
// list of slots; state/ decides where they live and a backend owns the bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace lemma::algorithm {

enum class SlotKind : std::uint8_t {
  kRows,   ///< one row per `ratio` tokens, kept for ever or, with a window, until it has passed
  kFixed,  ///< one block of a fixed size per sequence (recurrent matrix, conv tail, frontier)
};

/// How a slot's rows are held where the session asks for fp8, by what the architecture defines.
enum class Fp8Form : std::uint8_t {
  kNone,    ///< nothing: a session in fp8 is refused
  kLatent,  ///< fp8 in groups, with the turned tail in f16
  kIndex,   ///< fp4 in groups behind a Hadamard transform; a power of two wide
};

struct Slot {
  SlotKind kind = SlotKind::kRows;
  std::uint32_t width = 0;   ///< elements of one row, or of the whole block
  std::uint32_t window = 0;  ///< 0: rows are kept; W: a query at p reads rows above p - W only
  std::uint32_t ratio = 1;   ///< tokens per row
  std::uint32_t group = 32;  ///< elements that share a scale in grouped row formats; divides width
  /// Rows that a grouped format would hurt (turned keys that all heads share): where the session's
  /// format is coarser than f16, these are kept in f16.
  bool at_least_f16 = false;
  Fp8Form fp8 = Fp8Form::kNone;
  std::uint32_t tail = 0;  ///< kLatent: elements at the end that are turned
  friend bool operator==(const Slot&, const Slot&) = default;
};

using Slots = std::vector<Slot>;

}  // namespace lemma::algorithm
