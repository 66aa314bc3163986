// SPDX-License-Identifier: Apache-2.0
// Weight: one matrix, table or vector as the cpu backend holds it, and how it is multiplied.
// Immutable once made, so safe to share between threads and programs.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "backend/cpu/kernels/kernels.hpp"
#include "base/aligned_buffer.hpp"
#include "base/thread_pool.hpp"

namespace lemma::cpu {

/// How a matrix meets its activations.
enum class Product : std::uint8_t {
  kNone,     ///< a table or vector
  kFloat,    ///< packed; widened to f32 in the kernel
  kInt8,     ///< packed; int8 activations
  kDecoded,  ///< file layout; decoded to f32 by the format's definition, then as kFloat
};

/// The memory of packed weights, taken piece by piece from blocks whose pages are committed as they
/// are written. A matrix that had huge pages of its own would waste one, half used on average.
class PanelMemory {
 public:
  /// `bytes` bytes at a multiple of 64, until this is destroyed. Throws kOutOfMemory.
  std::span<std::byte> take(std::size_t bytes);

 private:
  std::vector<base::AlignedBuffer> blocks_;
  std::size_t used_ = 0;  ///< of the last block
};

struct Weight {
  weights::Matrix matrix;     ///< the file's bytes; what is packed is not read again
  std::vector<float> vector;  ///< kVector: the elements
  Product product = Product::kNone;
  WeightKernel kernel = WeightKernel::kF32;  ///< kFloat, kInt8
  std::span<std::byte> panels;               ///< empty where the matrix stays as the file has it
  std::size_t panel_bytes = 0;               ///< of one panel, packed now or when it is used
  bool scattered = false;  ///< few rows are read at a time, and the system is told which
  EnteredRows entered = EnteredRows::kAsGenerated;

  std::size_t panel_count() const noexcept {
    return static_cast<std::size_t>((matrix.rows + kPanelRows - 1) / kPanelRows);
  }
  /// Whether panels are packed from the file's bytes whenever a product reads them: the same
  /// panels, so the same bits.
  bool mapped() const noexcept {
    return (product == Product::kFloat || product == Product::kInt8) && panels.empty();
  }
  /// "q8_0 x int8", "f16 x f32", "q4_0 decoded x f32", "q4_k mapped x int8", "bf16 x int13 entered,
  /// x f32 generated"; `exact`: where entered rows are not rounded.
  std::string describe(bool exact = false) const;
};

/// Takes a weight for its use. A matrix is packed to `memory` with all threads, or, without it,
/// stays as the file has it. Throws kOutOfMemory.
Weight make_weight(weights::Matrix matrix, backend::WeightUse use, backend::Numerics numerics,
                   PanelMemory* memory, base::ThreadPool& pool);

}  // namespace lemma::cpu
