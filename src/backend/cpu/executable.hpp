// SPDX-License-Identifier: Apache-2.0
// CpuExecutable: a program as a list of planned executors over one context.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
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
  /// Parallel regions that the backend's threads have run so far.
  std::uint64_t regions() const noexcept { return context_.pool.regions(); }

 private:
  struct Planned {
    std::unique_ptr<Executor> executor;
    std::vector<backend::Tensor> observed;  ///< outputs that an observer wants
  };

  /// Executors that run together: one; or several that go through the rows; or one with phases and
  /// such several behind it, which are its region's last phase or follow each of its heads.
  struct Stage {
    std::size_t first = 0;  ///< of planned_
    std::size_t rows = 0;   ///< the first that goes through the rows; those before it follow heads
    std::size_t end = 0;    ///< behind the last
    backend::Tensor quantized;  ///< made by what goes through the rows, and rounded too; or none
  };

  void make_stages();
  void extend(Stage& stage);
  bool joins(const Stage& stage, std::size_t next) const;
  backend::Tensor rounded_by(const Stage& stage) const;
  void run_stage(const Stage& stage) noexcept;
  void run_rows(const Stage& stage, const QuantizedBuffer* to, std::size_t begin,
                std::size_t end) noexcept;
  std::string_view way(const Stage& stage, std::size_t i) const;
  RowExecutor* row_executor(std::size_t i) const noexcept;
  void observe(backend::Tensor tensor, const backend::Step& step) noexcept;

  Context context_;
  std::vector<Planned> planned_;  ///< by operation
  std::vector<Stage> stages_;
  std::vector<std::vector<backend::Observer*>> observers_;  ///< by tensor id
  const HeadExecutor* head_ = nullptr;
};

}  // namespace lemma::cpu
