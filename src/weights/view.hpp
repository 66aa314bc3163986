// SPDX-License-Identifier: Apache-2.0
// Views: the closed list of ways in which a plan may look at a tensor of a checkpoint. An
// architecture file names a tensor and a view and computes nothing; `bind` resolves both to a
// Matrix. A view that costs nothing (whole, rows, expert) points into the mapping; one that changes
// values or order owns its bytes. A view that a block format cannot express throws kUnsupported.
//
//   WeightRef q{"blk.0.attn_qkv.weight", View::rows(0, 2048)};
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weights/checkpoint.hpp"
#include "weights/format.hpp"

namespace lemma::weights {

struct View {
  enum class Kind : std::uint8_t {
    kWhole,
    kRows,         ///< rows [begin, end) of the flattened [rows, row_elements] matrix
    kStridedRows,  ///< of every group of `stride` rows the rows [begin, end): per-head splits
    kColumns,      ///< of every row the elements [begin, end), whole blocks: one of several inputs
    kElements,     ///< elements [begin, end) of a vector (slices of a fused bias)
    kTranspose,    ///< [r, c] -> [c, r], within each matrix of a stack; f32, f16, bf16 only
    kAddOne,       ///< w + 1 (zero-centred norm weights) as f32; from f32, f16, bf16 only
    kNegExp,       ///< -exp(w) (decay logarithms) as f32; from f32, f16, bf16 only
  };
  Kind kind = Kind::kWhole;
  std::uint64_t begin = 0, end = 0, stride = 0;

  static View whole() { return {}; }
  static View rows(std::uint64_t begin, std::uint64_t end) { return {Kind::kRows, begin, end, 0}; }
  static View strided_rows(std::uint64_t stride, std::uint64_t begin, std::uint64_t end) {
    return {Kind::kStridedRows, begin, end, stride};
  }
  static View columns(std::uint64_t begin, std::uint64_t end) {
    return {Kind::kColumns, begin, end, 0};
  }
  static View elements(std::uint64_t begin, std::uint64_t end) {
    return {Kind::kElements, begin, end, 0};
  }
  static View transpose() { return {Kind::kTranspose, 0, 0, 0}; }
  static View add_one() { return {Kind::kAddOne, 0, 0, 0}; }
  static View neg_exp() { return {Kind::kNegExp, 0, 0, 0}; }

  friend bool operator==(const View&, const View&) = default;
};

/// A tensor by name, seen through a view. An empty name means "no such weight".
struct WeightRef {
  std::string tensor;
  View view = {};

  explicit operator bool() const noexcept { return !tensor.empty(); }
  friend bool operator==(const WeightRef&, const WeightRef&) = default;
};

/// Bound weight bytes: `rows` rows of `cols` elements in `format`, rows contiguous. Vectors have
/// one row. `owner` keeps bytes alive that are not in the checkpoint's mapping (or is null).
struct Matrix {
  Format format = Format::kF32;
  std::uint64_t rows = 0, cols = 0;
  const std::byte* bytes = nullptr;
  std::shared_ptr<const void> owner;
  std::string name;  ///< the tensor's name, for messages

  std::size_t row_bytes() const noexcept { return weights::row_bytes(format, cols); }
  const std::byte* row(std::uint64_t r) const noexcept { return bytes + r * row_bytes(); }
  std::size_t size_bytes() const noexcept { return rows * row_bytes(); }
};

/// Resolves `ref` against `checkpoint` and checks the result to be [rows, cols]; a mismatch throws
/// kBadFile naming the tensor, the expected and the found shape. A vector of n elements, along
/// whichever dimension it was stored, binds as [1, n]; leading dimensions are flattened into rows.
Matrix bind(const Checkpoint& checkpoint, const WeightRef& ref, std::uint64_t rows,
            std::uint64_t cols);

/// Throws what bind() would of the tensor's name, its format and its shape, and touches no byte.
void check_shape(const Checkpoint& checkpoint, const WeightRef& ref, std::uint64_t rows,
                 std::uint64_t cols);

/// All elements of a bound matrix as f32 (norm weights, biases, tables, tests).
std::vector<float> to_f32(const Matrix& matrix);

}  // namespace lemma::weights
