// SPDX-License-Identifier: Apache-2.0
// Weight: one matrix, table or vector as the cpu backend holds it, and how it is multiplied.
// Immutable once made, so safe to share between threads and programs.
#pragma once

#include <cstddef>
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

struct Weight {
  weights::Matrix matrix;     ///< the file's bytes; a packed matrix does not read them again
  std::vector<float> vector;  ///< kVector: the elements
  Product product = Product::kNone;
  WeightKernel kernel = WeightKernel::kF32;  ///< kFloat, kInt8
  base::AlignedBuffer panels;
  std::size_t panel_bytes = 0;

  std::size_t panel_count() const noexcept {
    return static_cast<std::size_t>((matrix.rows + kPanelRows - 1) / kPanelRows);
  }
  /// "q8_0 x int8", "f16 x f32", "q4_0 decoded x f32".
  std::string describe() const;
};

/// Takes a weight for its use and packs it with all threads. Throws kOutOfMemory.
Weight make_weight(weights::Matrix matrix, backend::WeightUse use, backend::Numerics numerics,
                   base::ThreadPool& pool);

}  // namespace lemma::cpu
