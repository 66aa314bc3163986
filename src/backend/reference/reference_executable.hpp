// SPDX-License-Identifier: Apache-2.0
// ReferenceExecutable: runs a program operation by operation, each through the contract's function.
// Read this before any fast code: one member function an operation, in the order of backend.hpp.
#pragma once

#include <vector>

#include "backend/backend.hpp"
#include "backend/host_state.hpp"
#include "backend/tensor_arena.hpp"
#include "base/check.hpp"

namespace lemma::reference {

/// A weight as the reference holds it: matrices and tables in their format, vectors decoded.
struct Weight {
  weights::Matrix matrix;
  std::vector<float> vector;
};

class ReferenceExecutable final : public backend::Executable {
 public:
  ReferenceExecutable(const backend::Program& program, const std::vector<Weight>& weights,
                      backend::HostState& state, const backend::PrepareOptions& options);

  std::span<const backend::SegmentResult> run(const backend::Step& step) noexcept override;
  std::span<const float> logits(std::size_t i) const noexcept override;
  std::vector<backend::Placement> placements() const override;
  std::size_t scratch_bytes() const noexcept override;

 private:
  // The operations; each works on all rows of the step.
  void run(const backend::Embed& op) noexcept;
  void run(const backend::Norm& op) noexcept;
  void run(const backend::Project& op) noexcept;
  void run(const backend::Rotate& op) noexcept;
  void run(const backend::Store& op) noexcept;
  void run(const backend::Attend& op) noexcept;
  void run(const backend::Gate& op) noexcept;
  void run(const backend::Mlp& op) noexcept;
  void run(const backend::Add& op) noexcept;
  void run(const backend::Head& op) noexcept;
  template <typename Missing>
  void run(const Missing&) noexcept {
    LEMMA_CHECK(false);
  }

  /// out [T, rows of W] = in [T, cols of W] W^T + bias, a weight row decoded at a time.
  void multiply(backend::WeightId weight, backend::WeightId bias, const float* in, std::size_t rows,
                float* out) noexcept;
  std::span<const float> vector(backend::WeightId id) const noexcept;
  void observe(const backend::Operation& operation) noexcept;
  /// Marks the segment of `row` as failed at `tensor`, unless it failed before.
  void fail(std::size_t row, backend::Tensor tensor) noexcept;
  std::size_t rows() const noexcept { return step_->tokens.size(); }

  const backend::Program& program_;
  const std::vector<Weight>& weights_;
  backend::HostState& state_;
  backend::TensorArena arena_;
  std::vector<algorithm::RopeTable> ropes_;
  std::vector<std::vector<backend::Observer*>> observers_;  ///< by tensor id

  const backend::Step* step_ = nullptr;  ///< the running step
  std::vector<backend::SegmentResult> results_;
  std::vector<std::uint32_t> segment_of_;  ///< by row
  std::vector<float> logits_;              ///< [max_rows, V], grown to what steps ask for
  std::vector<float> gathered_;            ///< [rows that want logits, D]
  std::vector<float> decoded_;             ///< one weight row
  std::vector<float> gate_, up_;           ///< [max_rows, F]
  std::vector<float> key_, value_;         ///< one head's row as the state holds it
  std::vector<float> cos_, sin_;
  std::vector<std::vector<float>> slopes_;  ///< ALiBi's by query head, by key slot
};

}  // namespace lemma::reference
