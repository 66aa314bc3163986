// SPDX-License-Identifier: Apache-2.0
// ReferenceExecutable: runs a program operation by operation, in order, each as Operations says,
// and shows every tensor to its observers as soon as it is written.
#pragma once

#include <vector>

#include "backend/backend.hpp"
#include "backend/host_state.hpp"
#include "backend/reference/operations.hpp"
#include "backend/tensor_arena.hpp"

namespace lemma::reference {

class ReferenceExecutable final : public backend::Executable {
 public:
  ReferenceExecutable(const backend::Program& program, const WeightSource& weights,
                      backend::HostState& state, const backend::PrepareOptions& options);

  std::span<const backend::SegmentResult> run(const backend::Step& step) noexcept override;
  std::span<const float> logits(std::size_t i) const noexcept override;
  std::vector<backend::Placement> placements() const override;
  std::size_t scratch_bytes() const noexcept override;

 private:
  void observe(const backend::Operation& operation, const backend::Step& step) noexcept;
  /// Marks the segment of `row` as failed at `tensor`, unless it failed before.
  void fail(std::size_t row, backend::Tensor tensor) noexcept;

  const backend::Program& program_;
  backend::HostState& state_;
  backend::TensorArena arena_;
  Operations operations_;
  std::vector<std::vector<backend::Observer*>> observers_;  ///< by tensor id
  std::vector<backend::SegmentResult> results_;
  std::vector<std::uint32_t> segment_of_;  ///< by row
};

}  // namespace lemma::reference
