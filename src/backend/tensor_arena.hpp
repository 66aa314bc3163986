// SPDX-License-Identifier: Apache-2.0
// TensorArena: host memory for the activations of one program. Tensors whose lives do not overlap
// share memory, so scratch grows with the widest moment of a layer and not with the layer count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "base/aligned_buffer.hpp"

namespace lemma::backend {

/// The tensors that an operation reads, and those that it writes.
std::vector<Tensor> inputs(const Operation& operation);
std::vector<Tensor> outputs(const Operation& operation);

class TensorArena {
 public:
  /// Operation i may still be at work while later ones are, up to `until[i]`: what they touch lives
  /// as long. Empty: operations run one after the other.
  TensorArena(const Program& program, std::uint32_t max_rows,
              std::span<const std::size_t> until = {});

  /// [max_rows, width] floats, 64-byte aligned rows' start.
  float* data(Tensor tensor) const noexcept { return data_[static_cast<std::size_t>(tensor.id)]; }
  float* row(Tensor tensor, std::size_t r) const noexcept {
    return data(tensor) + r * tensor.width;
  }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::vector<base::AlignedBuffer> buffers_;
  std::vector<float*> data_;  ///< by tensor id
  std::size_t bytes_ = 0;
};

}  // namespace lemma::backend
