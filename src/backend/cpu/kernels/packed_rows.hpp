// SPDX-License-Identifier: Apache-2.0
// Rows of int8 activations packed by matrix tiles: 16 rows of the 32 columns of a group lie
// together, and so do their numbers, of which a vector is one group's. As rows lie in
// QuantizedRows, those whose distance is a power of two share few lines of the first cache.
#pragma once

#include "backend/cpu/kernels/int8_tile.hpp"

namespace lemma::cpu {

inline constexpr std::size_t kUnitRows = 16;    ///< of a tile
inline constexpr std::size_t kUnitGroups = 16;  ///< that are packed at a time

/// 16 rows of some groups. Where fewer rows are there, the last one stands in for them.
struct PackedRows {
  alignas(64) std::int8_t codes[kUnitGroups][kUnitRows][kGroup];
  alignas(64) float scales[kUnitGroups][kUnitRows];
  alignas(64) float scaled_sums[kUnitGroups][kUnitRows];
  alignas(64) std::int32_t pairs[kUnitGroups][kUnitRows];  ///< the third of QuantizedRows::sums
};

/// Where each of the 16 rows has the first of its groups, among those of all rows. (`Simd` only
/// makes the members local to one instruction set.)
template <typename Simd>
struct UnitRows {
  std::size_t first[kUnitRows];

  UnitRows(const ProjectJob& job, std::size_t row, std::size_t group) {
    for (std::size_t r = 0; r < kUnitRows; ++r) {
      first[r] = (row + r < job.rows ? row + r : job.rows - 1) * (job.cols / kGroup) + group;
    }
  }
};

template <typename Simd>
void pack_codes(const std::int8_t* from, const UnitRows<Simd>& rows, std::size_t groups,
                PackedRows& to) {
  for (std::size_t r = 0; r < kUnitRows; ++r) {
    for (std::size_t g = 0; g < groups; ++g) {
      __builtin_memcpy(to.codes[g][r], from + (rows.first[r] + g) * kGroup, kGroup);
    }
  }
}

/// Numbers of which each group has one.
template <typename Simd>
void pack_numbers(const float* from, const UnitRows<Simd>& rows, std::size_t groups,
                  float (&to)[kUnitGroups][kUnitRows]) {
  static_assert(Simd::kLanes == kUnitRows);
  if (groups == kUnitGroups) {
    typename Simd::F x[kUnitRows];
    LEMMA_UNROLL
    for (std::size_t r = 0; r < kUnitRows; ++r) x[r] = Simd::load(from + rows.first[r]);
    Simd::transpose(x);
    LEMMA_UNROLL
    for (std::size_t g = 0; g < kUnitGroups; ++g) Simd::store(to[g], x[g]);
    return;
  }
  for (std::size_t r = 0; r < kUnitRows; ++r) {
    for (std::size_t g = 0; g < groups; ++g) to[g][r] = from[rows.first[r] + g];
  }
}

template <typename Simd>
void pack_pairs(const std::int32_t* sums, const UnitRows<Simd>& rows, std::size_t groups,
                PackedRows& to) {
  for (std::size_t r = 0; r < kUnitRows; ++r) {
    for (std::size_t g = 0; g < groups; ++g) to.pairs[g][r] = sums[(rows.first[r] + g) * 3 + 2];
  }
}

}  // namespace lemma::cpu
