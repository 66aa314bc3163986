// SPDX-License-Identifier: Apache-2.0
// Attention of entered rows in whole numbers of 13 bits. Queries and keys become codes of at most
// 4095 with a scale for each 128 elements of a row, values codes with a scale for each row, and the
// weights of a query on a piece of 64 keys, times the values' scales, codes of at most 8191 with
// one scale. Sums of products of codes are exact in 32 bits (128 * 4095^2 and 64 * 8191 * 4095 are
// below 2^31), so that their order does not count; what they make is added up in f32:
//
//   score    = fma(sum of codes, query scale * key scale, score), for each 128 elements, ascending
//   weighted = fma(sum of codes, weights' scale, weighted), for each piece, ascending
//
// A query takes whole pieces, with codes of zero for the weights of what it does not see. All that
// is rounded is rounded by a row's own numbers, to the nearest, ties to even, so that nothing shows
// where a prompt was cut or who shares a piece. A row that holds NaN or infinity has scale NaN;
// numbers below 2^-100 of a row that has no larger ones are taken for zeros.
//
// Codes lie in pairs of 16 bits, the first in the lower half: of neighbours in a row (queries,
// keys) or of neighbouring positions (weights, values).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernels.hpp"

namespace lemma::cpu {

/// Elements of a query or key that share a scale.
inline constexpr std::size_t kWholeBlock = 128;

constexpr std::size_t whole_blocks(std::size_t width) noexcept {
  return (width + kWholeBlock - 1) / kWholeBlock;
}
/// Pairs of a query or key: whole vectors of 32 elements.
constexpr std::size_t whole_pairs(std::size_t width) noexcept {
  return (width + 31) / 32 * 16;
}

/// out[r, c] = (accumulate ? out[r, c] : 0), then, for each run of 64 of the `k` pairs, plus
/// (sum of x[r, k] . panel[k, c]) * row_scales[r, run] * column_scales[run, c].
struct WholeProductJob {
  const std::uint32_t* panel = nullptr;
  std::size_t k_stride = 0;      ///< pairs from one k to the next
  std::size_t panel_stride = 0;  ///< pairs from 16 columns to the next 16
  std::size_t k = 0;
  std::size_t columns = 0;  ///< a multiple of 16
  const std::uint32_t* x = nullptr;
  std::size_t x_stride = 0;
  std::size_t rows = 0;
  const float* row_scales = nullptr;  ///< [rows, runs]
  std::size_t row_scale_stride = 0;
  const float* column_scales = nullptr;  ///< [runs, 64], or null
  float* out = nullptr;
  std::size_t out_stride = 0;
  bool accumulate = false;
};

/// The weights of one query on a piece become codes for the product with its values.
struct WholeWeightsJob {
  const float* weights = nullptr;         ///< [64]
  const std::int32_t* visible = nullptr;  ///< [64]: 0 where a key is not seen; null: all are
  const float* value_scales = nullptr;    ///< [64]; counts only where it is seen
  std::uint32_t* pairs = nullptr;         ///< [32]
  float* scale = nullptr;
};

struct WholeAttention {
  static constexpr std::size_t kF32 = 2;  ///< index of the form for f32 rows; f16 is 0, bf16 is 1
  static constexpr std::size_t kForms = 3;

  /// A query of n elements: whole_pairs(n) pairs, whole_blocks(n) scales.
  void (*round_query)(const float* x, std::size_t n, std::uint32_t* pairs, float* scales);
  /// 16 keys of n elements, `stride` elements apart, become a panel [whole_pairs(n)][16], and their
  /// scales [whole_blocks(n)], `scale_stride` floats apart, of 16.
  void (*turn_keys[kForms])(const std::byte* rows, std::size_t stride, std::size_t n,
                            std::uint32_t* panel, float* scales, std::size_t scale_stride);
  /// Values of n elements at positions [begin, end) of 64, of which `rows` is the first, become
  /// pairs [32][n padded to 16], with a scale for each. Codes of other positions may be anything,
  /// and their rows are not read.
  void (*pair_values[kForms])(const std::byte* rows, std::size_t stride, std::size_t n,
                              std::size_t begin, std::size_t end, std::uint32_t* pairs,
                              float* scales);
  void (*round_weights)(const WholeWeightsJob& job);
  void (*product)(const WholeProductJob& job);
};

extern const WholeAttention kAvx512WholeAttention;  ///< x86-64 builds

}  // namespace lemma::cpu
