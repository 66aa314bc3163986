// SPDX-License-Identifier: Apache-2.0
// Linear: one weight of a product, as an executor uses it: a range of its outputs for all rows,
// with bias and clamp. Stateless apart from what it points at; ranges run on different threads.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include "backend/cpu/context.hpp"

namespace lemma::cpu {

class Linear {
 public:
  /// Outputs of one chunk: what a thread takes at a time. Four panels, so that a kernel may read
  /// four streams side by side; a multiple of 32, so that a chunk of a hidden row is whole groups.
  static constexpr std::size_t kChunk = 4 * kPanelRows;

  Linear() = default;
  Linear(const Context& context, backend::WeightId weight, backend::WeightId bias,
         float clamp = 0.f);

  explicit operator bool() const noexcept { return weight_ != nullptr; }
  const Weight& weight() const noexcept { return *weight_; }
  std::size_t outputs() const noexcept { return static_cast<std::size_t>(weight_->matrix.rows); }
  std::size_t cols() const noexcept { return static_cast<std::size_t>(weight_->matrix.cols); }
  std::size_t chunks() const noexcept { return (outputs() + kChunk - 1) / kChunk; }
  std::size_t chunk_outputs(std::size_t chunk) const noexcept;
  /// Multiply-adds for `rows` rows.
  std::size_t work(std::size_t rows) const noexcept { return rows * outputs() * cols(); }
  bool wants_int8() const noexcept { return weight_->product == Product::kInt8; }

  /// The outputs [64 chunk, ...) of every row. `out` points at the chunk's first output of row 0.
  void run(const KernelTable& kernels, const ProductInput& in, std::size_t chunk, float* out,
           std::size_t out_stride) const noexcept;
  /// The outputs [first, first + count) of every row, at most kChunk: of one matrix of a stack, for
  /// example, whose rows may begin anywhere in a panel. `out` points at output `first` of row 0.
  void run(const KernelTable& kernels, const ProductInput& in, std::size_t first, std::size_t count,
           float* out, std::size_t out_stride) const noexcept;

 private:
  /// The outputs of one run of rows; `out` points at output `first` of the run's first row.
  void multiply(const KernelTable& kernels, const ProductInput& in, const ClassRun& run,
                std::size_t first, std::size_t count, float* out,
                std::size_t out_stride) const noexcept;
  void multiply_unaligned(const KernelTable& kernels, const ProductInput& in, const ClassRun& run,
                          std::size_t first, std::size_t count, float* out,
                          std::size_t out_stride) const noexcept;
  void multiply_decoded(const KernelTable& kernels, const ProductInput& in, const ClassRun& run,
                        std::size_t first, std::size_t count, float* out,
                        std::size_t out_stride) const noexcept;

  const Weight* weight_ = nullptr;
  std::span<const float> bias_;
  float clamp_ = 0.f;
};

/// How several products run, and the formats of their weights, each named once. Those that are not
/// there are left out.
std::string implementations(std::initializer_list<const Linear*> linears);
std::string formats(std::initializer_list<const Linear*> linears);

}  // namespace lemma::cpu
