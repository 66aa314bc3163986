// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/executable.hpp"

#include "backend/tensor_arena.hpp"
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
  make_stages();
}

RowExecutor* CpuExecutable::row_executor(std::size_t i) const noexcept {
  return dynamic_cast<RowExecutor*>(planned_[i].executor.get());
}

/// Whether operation `next` may go through the rows together with those of `stage`. An observed
/// tensor ends its stage, since its rows may be replaced. So does memory that a tensor leaves to
/// one of another width: there a row of the one lies where another row of the other is.
bool CpuExecutable::joins(const Stage& stage, std::size_t next) const {
  const auto& operations = context_.program.operations;
  if (next >= planned_.size() || row_executor(next) == nullptr) return false;
  if (!planned_[next - 1].observed.empty()) return false;
  for (const backend::Tensor made : backend::outputs(operations[next])) {
    for (std::size_t i = stage.first; i < next; ++i) {
      for (const auto& touched :
           {backend::inputs(operations[i]), backend::outputs(operations[i])}) {
        for (const backend::Tensor tensor : touched) {
          if (tensor.width != made.width &&
              context_.arena.data(tensor) == context_.arena.data(made))
            return false;
        }
      }
    }
  }
  return true;
}

/// What the operation after the stage reads rounded, if the stage makes it.
backend::Tensor CpuExecutable::rounded_by(const Stage& stage) const {
  const std::size_t next = stage.first + stage.count;
  if (next >= planned_.size() || !planned_[next - 1].observed.empty()) return {};
  const backend::Tensor in = planned_[next].executor->reads_quantized();
  for (std::size_t i = stage.first; i < next; ++i) {
    for (const backend::Tensor made : backend::outputs(context_.program.operations[i])) {
      if (made.id == in.id) return in;
    }
  }
  return {};
}

void CpuExecutable::make_stages() {
  for (std::size_t first = 0; first < planned_.size();) {
    Stage stage{first, 1, {}};
    if (row_executor(first) != nullptr) {
      while (joins(stage, first + stage.count)) ++stage.count;
      stage.quantized = rounded_by(stage);
    }
    stages_.push_back(stage);
    first += stage.count;
  }
}

void CpuExecutable::run_together(const Stage& stage) noexcept {
  const QuantizedBuffer* const to =
      stage.quantized ? &context_.begin_quantized(stage.quantized) : nullptr;
  const std::size_t cols = stage.quantized.width;
  context_.each_rows([&](std::size_t begin, std::size_t end) {
    for (std::size_t i = 0; i < stage.count; ++i) {
      static_cast<RowExecutor&>(*planned_[stage.first + i].executor).run_rows(context_, begin, end);
    }
    if (to == nullptr) return;
    context_.kernels.quantize(context_.arena.row(stage.quantized, begin), (end - begin) * cols,
                              to->rows(cols, begin));
  });
  context_.settle({});
}

std::span<const backend::SegmentResult> CpuExecutable::run(const backend::Step& step) noexcept {
  context_.begin(step);
  for (const backend::Segment& segment : step.segments) {
    context_.state.begin_blocks(*segment.sequence);
  }
  for (const Stage& stage : stages_) {
    const Planned& last = planned_[stage.first + stage.count - 1];
    if (stage.count > 1 || stage.quantized) {
      run_together(stage);
    } else {
      last.executor->run(context_);
    }
    for (const backend::Tensor tensor : last.observed) observe(tensor, step);
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
