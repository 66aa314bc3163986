// SPDX-License-Identifier: Apache-2.0
// CpuExecutable: a program as a list of planned executors over one context.
#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/executor.hpp"

namespace lemma::cpu {

class CpuExecutable final : public backend::Executable {
 public:
  CpuExecutable(const KernelTable& kernels, base::ThreadPool& pool,
                const std::deque<Weight>& weights, const backend::Program& program,
                backend::HostState& state, const backend::PrepareOptions& options);

  std::span<const backend::SegmentResult> run(const backend::Step& step) noexcept override;
  std::span<const float> logits(std::size_t i) const noexcept override;
  std::vector<backend::Placement> placements() const override;
  std::size_t scratch_bytes() const noexcept override;

 private:
  struct Planned {
    std::unique_ptr<Executor> executor;
    std::vector<backend::Tensor> observed;  ///< outputs that an observer wants
  };

  /// Executors that run together: one, or several that go through the rows.
  struct Stage {
    std::size_t first = 0, count = 0;  ///< of planned_
    backend::Tensor quantized;         ///< made by the stage, and rounded by it too; or none
  };

  void make_stages();
  bool joins(const Stage& stage, std::size_t next) const;
  backend::Tensor rounded_by(const Stage& stage) const;
  void run_together(const Stage& stage) noexcept;
  RowExecutor* row_executor(std::size_t i) const noexcept;
  void observe(backend::Tensor tensor, const backend::Step& step) noexcept;

  Context context_;
  std::vector<Planned> planned_;  ///< by operation
  std::vector<Stage> stages_;
  std::vector<std::vector<backend::Observer*>> observers_;  ///< by tensor id
  const HeadExecutor* head_ = nullptr;
};

}  // namespace lemma::cpu
