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

  void observe(backend::Tensor tensor, const backend::Step& step) noexcept;

  Context context_;
  std::vector<Planned> planned_;                            ///< by operation
  std::vector<std::vector<backend::Observer*>> observers_;  ///< by tensor id
  const HeadExecutor* head_ = nullptr;
};

}  // namespace lemma::cpu
