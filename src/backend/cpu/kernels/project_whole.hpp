// SPDX-License-Identifier: Apache-2.0
// Products of entered rows with F16 and BF16 weights in whole numbers of 13 bits. 128 columns of a
// row, of weights or of activations, are codes of at most 4095 with one scale, their largest
// magnitude / 4095; a code is the nearest whole number, ties to even, of x * (4095 / largest).
// 128 * 4095^2 is below 2^31, so that sums of products of codes are exact in 32 bits whatever their
// order. Each output is
//
//   out = 0; for each 128 columns, ascending: out = fma(sum of codes, w scale * x scale, out)
//
// A row is rounded by its own numbers, and neither tiles nor runs of columns change that order: a
// row's bits do not depend on its company. NaN or infinity in 128 columns makes their scale NaN or
// infinity, and the output with it. Where nothing reaches 2^-100 all is taken for zero.
//
// This header has what those who make rows must know: how a rounded row lies.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lemma::cpu {

/// Columns that share a scale.
inline constexpr std::size_t kWholeColumns = 128;

/// Where a rounded row of `cols` columns has its scales: behind its codes, 16 bits each, in pairs,
/// with zeros up to a multiple of 32.
constexpr std::size_t whole_scales_at(std::size_t cols) noexcept {
  return (cols + 31) / 32 * 64;
}
/// Bytes of the row: an odd number of lines, so that rows that are read side by side do not share
/// few lines of the first cache.
constexpr std::size_t whole_row_bytes(std::size_t cols) noexcept {
  const std::size_t scales = (cols + kWholeColumns - 1) / kWholeColumns * sizeof(float);
  return ((whole_scales_at(cols) + scales + 63) / 64 | 1) * 64;
}

}  // namespace lemma::cpu
