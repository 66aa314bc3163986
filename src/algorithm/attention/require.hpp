// SPDX-License-Identifier: Apache-2.0
// What the validate() of an attention spec is made of: one field, what it must be, what was found.
// Included by the sources of specs only.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string_view>

#include "algorithm/slot.hpp"
#include "base/raise.hpp"

namespace lemma::algorithm {

/// Throws kUnsupported "<spec> <field>: expected <expected>, found <found>" unless `holds`.
template <typename T>
void require(bool holds, std::string_view spec, std::string_view field, std::string_view expected,
             T found) {
  if (!holds) {
    base::raise(ErrorKind::kUnsupported, "{} {}: expected {}, found {}", spec, field, expected,
                found);
  }
}

/// Whether a row of `a` runs of `b` elements has at least one and fewer than 2^32 elements.
constexpr bool is_row(std::uint64_t a, std::uint64_t b) noexcept {
  constexpr std::uint64_t kLimit = std::numeric_limits<std::uint32_t>::max();
  return a > 0 && b > 0 && a <= kLimit && b <= kLimit && a * b <= kLimit;
}

inline bool is_positive(float x) noexcept {
  return std::isfinite(x) && x > 0.f;
}

/// A slot of rows of `width` elements in scale groups of 32, or of the largest power of two below
/// it that divides the width.
inline Slot row_slot(std::uint32_t width, std::uint32_t window = 0, std::uint32_t ratio = 1) {
  constexpr std::uint32_t kScaleGroup = 32;
  Slot slot;
  slot.kind = SlotKind::kRows;
  slot.width = width;
  slot.window = window;
  slot.ratio = ratio;
  slot.group = std::gcd(width, kScaleGroup);
  return slot;
}

}  // namespace lemma::algorithm
