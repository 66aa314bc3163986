// SPDX-License-Identifier: Apache-2.0
// GPTQ (Frantar et al. 2022, arXiv:2210.17323): the codes of a row are chosen one column after the
// other, and the error that each choice makes in the outputs is undone as far as possible by the
// columns that are still free. With H the sum of x x^T over the row's inputs (plus a damping), and
// U the upper triangular matrix with U^T U = H^-1, choosing q for column j moves column k > j by
// -(w_j - q) U_jk / U_jj.
//
// Formats keep a row's columns in their places and share scales among the elements of a block, so
// the order is one of blocks: that whose inputs are largest comes first, while most columns are
// free to make good its errors. A block's scales are found, as if it stood alone, from the weights
// as they are when its turn comes; then its columns follow, again the largest input first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.hpp"
#include "weights/format.hpp"

namespace lemma::quantize {

class Gptq {
 public:
  static constexpr std::size_t kRowsAtOnce = 16;

  /// `hessian` [cols, cols], the lower triangle, for rows of `format` (formats/codes.hpp says which
  /// there are). `damping` is a part of the diagonal's mean, which is added to all of it.
  Gptq(std::span<const float> hessian, std::size_t cols, weights::Format format, double damping,
       base::ThreadPool& pool);

  /// Encodes `rows` rows, at most kRowsAtOnce, of finite numbers, to `out`. Safe to share.
  void encode(std::span<const float> in, std::size_t rows, std::byte* out) const;

 private:
  std::size_t cols_, block_;
  const weights::FormatTraits& format_;
  std::vector<std::uint32_t> order_;  ///< columns as they are taken, blocks whole
  std::vector<float> importance_;     ///< the diagonal, by column
  std::vector<float> upper_;          ///< U by rows in the order: row j from j on
};

/// The squared error of a row's outputs summed over its inputs: e^T H e, H's lower triangle given.
double output_error(std::span<const float> error, std::span<const float> hessian);

}  // namespace lemma::quantize
