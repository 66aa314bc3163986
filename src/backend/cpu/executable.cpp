// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/executable.hpp"

#include "base/check.hpp"

namespace lemma::cpu {

CpuExecutable::CpuExecutable(const KernelTable& kernels, base::ThreadPool& pool,
                             const std::deque<Weight>& weights, const backend::Program& program,
                             backend::HostState& state, const backend::PrepareOptions& options)
    : context_(kernels, pool, weights, program, state, options.max_rows,
               options.max_logit_rows == 0 ? options.max_rows : options.max_logit_rows),
      observers_(program.tensors.size()) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    for (backend::Observer* observer : options.observers) {
      if (observer->wants(program.tensors[t])) observers_[t].push_back(observer);
    }
  }
  for (const backend::Operation& operation : program.operations) {
    Planned planned;
    std::visit(
        [&](const auto& op) {
          auto executor = plan(op, context_);
          if constexpr (std::is_same_v<decltype(executor), std::unique_ptr<HeadExecutor>>) {
            head_ = executor.get();
          }
          planned.executor = std::move(executor);
        },
        operation);
    for (const backend::Tensor tensor : backend::outputs(operation)) {
      if (!observers_[static_cast<std::size_t>(tensor.id)].empty()) {
        planned.observed.push_back(tensor);
      }
    }
    planned_.push_back(std::move(planned));
  }
}

std::span<const backend::SegmentResult> CpuExecutable::run(const backend::Step& step) noexcept {
  context_.begin(step);
  for (const backend::Segment& segment : step.segments) {
    context_.state.begin_blocks(*segment.sequence);
  }
  for (const Planned& planned : planned_) {
    planned.executor->run(context_);
    for (const backend::Tensor tensor : planned.observed) observe(tensor, step);
  }
  return context_.results();
}

void CpuExecutable::observe(backend::Tensor tensor, const backend::Step& step) noexcept {
  for (backend::Observer* observer : observers_[static_cast<std::size_t>(tensor.id)]) {
    observer->observe(tensor.id, context_.program.tensors[static_cast<std::size_t>(tensor.id)],
                      step, {context_.arena.data(tensor), context_.rows() * tensor.width});
  }
}

std::span<const float> CpuExecutable::logits(std::size_t i) const noexcept {
  LEMMA_CHECK(head_ != nullptr);
  return head_->logits(i);
}

std::vector<backend::Placement> CpuExecutable::placements() const {
  std::vector<backend::Placement> result;
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    const backend::Operation& operation = context_.program.operations[i];
    const std::vector<backend::Tensor> written = backend::outputs(operation);
    const Executor& executor = *planned_[i].executor;
    std::string implementation = executor.implementation();
    if (!executor.borrowed()) {
      implementation = std::string("cpu ") + context_.kernels.name +
                       (implementation.empty() ? "" : " " + implementation);
    }
    result.push_back(
        {std::string(backend::operation_name(operation)),
         written.empty()
             ? ""
             : context_.program.tensors[static_cast<std::size_t>(written.front().id)].name,
         std::move(implementation), executor.format()});
  }
  return result;
}

std::size_t CpuExecutable::scratch_bytes() const noexcept {
  std::size_t bytes = context_.scratch_bytes();
  for (const Planned& planned : planned_) bytes += planned.executor->scratch_bytes();
  return bytes;
}

}  // namespace lemma::cpu
