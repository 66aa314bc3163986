// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/executable.hpp"

#include <algorithm>

#include "backend/tensor_arena.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

/// Whether an operation may work on heads of a product as they are made.
bool may_follow(const backend::Operation& operation) {
  if (const auto* norm = std::get_if<backend::Norm>(&operation)) return norm->group != 0;
  return std::holds_alternative<backend::Rotate>(operation) ||
         std::holds_alternative<backend::Store>(operation);
}

/// For each operation the last one that may run beside it: see backend::TensorArena.
std::vector<std::size_t> run_until(const backend::Program& program) {
  const auto& operations = program.operations;
  std::vector<std::size_t> until(operations.size());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    std::size_t last = i;
    if (std::holds_alternative<backend::Project>(operations[i])) {
      while (last + 1 < operations.size() && may_follow(operations[last + 1])) ++last;
    }
    for (; i < last; ++i) until[i] = last;
    until[i] = last;
  }
  return until;
}

}  // namespace

CpuExecutable::CpuExecutable(const KernelTable& kernels, base::ThreadPool& pool,
                             const std::deque<Weight>& weights, const backend::Program& program,
                             backend::HostState& state, const backend::PrepareOptions& options)
    : context_(kernels, pool, weights, program, state, options.max_rows,
               options.max_logit_rows == 0 ? options.max_rows : options.max_logit_rows,
               run_until(program)),
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
    for (std::size_t i = stage.rows; i < next; ++i) {
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

/// What one of the next operations reads rounded, if the stage's row operations make it.
backend::Tensor CpuExecutable::rounded_by(const Stage& stage) const {
  constexpr std::size_t kAhead = 4;  // past a router, which reads the experts' rows in f32
  if (stage.rows == stage.end || !planned_[stage.end - 1].observed.empty()) return {};
  for (std::size_t next = stage.end; next < std::min(stage.end + kAhead, planned_.size()); ++next) {
    const backend::Tensor in = planned_[next].executor->reads_quantized();
    if (!in) continue;
    for (std::size_t i = stage.rows; i < stage.end; ++i) {
      for (const backend::Tensor made : backend::outputs(context_.program.operations[i])) {
        if (made.id == in.id) return in;
      }
    }
  }
  return {};
}

/// Adds the row operations that may run in the stage.
void CpuExecutable::extend(Stage& stage) {
  while (joins(stage, stage.end)) ++stage.end;
  if (auto* const product = dynamic_cast<PhasedExecutor*>(planned_[stage.first].executor.get())) {
    std::vector<PhasedExecutor::Follower> followers;
    for (std::size_t i = stage.rows; i < stage.end; ++i) {
      const backend::Operation& operation = context_.program.operations[i];
      if (!may_follow(operation)) break;
      const std::vector<backend::Tensor> made = backend::outputs(operation);
      followers.push_back({row_executor(i), backend::inputs(operation).front(),
                           made.empty() ? backend::Tensor{} : made.front()});
    }
    if (!followers.empty() && product->follow(followers)) stage.rows += followers.size();
  }
  stage.quantized = rounded_by(stage);
}

void CpuExecutable::make_stages() {
  for (std::size_t first = 0; first < planned_.size();) {
    const bool rows = row_executor(first) != nullptr;
    const bool phases = dynamic_cast<PhasedExecutor*>(planned_[first].executor.get()) != nullptr;
    Stage stage{first, rows ? first : first + 1, first + 1, {}};
    if (rows || phases) extend(stage);
    stages_.push_back(stage);
    first = stage.end;
  }
}

/// The stage's row operations for some rows, and the rounding of what they made.
void CpuExecutable::run_rows(const Stage& stage, const QuantizedBuffer* to, std::size_t begin,
                             std::size_t end) noexcept {
  for (std::size_t i = stage.rows; i < stage.end; ++i) {
    static_cast<RowExecutor&>(*planned_[i].executor).run_rows(context_, begin, end);
  }
  if (to == nullptr) return;
  context_.round_rows(stage.quantized, begin, end, *to);
}

void CpuExecutable::run_stage(const Stage& stage) noexcept {
  const auto begin_rounding = [&] {
    return stage.quantized ? &context_.begin_quantized(stage.quantized) : nullptr;
  };
  const std::size_t rows = context_.rows(), grain = Context::kRowGrain;
  if (stage.rows == stage.first) {
    const QuantizedBuffer* const to = begin_rounding();
    context_.each_rows(
        [&](std::size_t begin, std::size_t end) { run_rows(stage, to, begin, end); });
    return context_.settle({});
  }
  auto& product = static_cast<PhasedExecutor&>(*planned_[stage.first].executor);
  PhasedExecutor::Phases phases;
  const std::size_t own = product.begin(context_, phases);
  // The buffer may hold what the product reads: the rows are rounded when it is done.
  const QuantizedBuffer* const to = begin_rounding();
  const bool few = rows < Context::kFewRows, behind = stage.rows < stage.end;
  std::size_t count = own;
  if (behind && !few) phases[count++] = {(rows + grain - 1) / grain, 0};
  context_.each({phases.data(), count}, [&](std::size_t phase, std::size_t item, int thread) {
    if (phase < own) return product.run_item(context_, phase, item, thread);
    run_rows(stage, to, item * grain, std::min(item * grain + grain, rows));
  });
  if (behind && few) run_rows(stage, to, 0, rows);
  product.finish(context_);
  context_.settle({});
}

std::span<const backend::SegmentResult> CpuExecutable::run(const backend::Step& step) noexcept {
  context_.begin(step);
  for (const backend::Segment& segment : step.segments) {
    context_.state.begin_blocks(*segment.sequence);
  }
  for (const Stage& stage : stages_) {
    const Planned& last = planned_[stage.end - 1];
    if (stage.end - stage.first > 1 || stage.quantized) {
      run_stage(stage);
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

/// How operation `i` of a stage runs, if not in a region of its own.
std::string_view CpuExecutable::way(const Stage& stage, std::size_t i) const {
  if (stage.end - stage.first == 1) return "";
  if (stage.rows == stage.first) return ", one pass over rows";
  if (i == stage.first) return "";
  return i < stage.rows ? ", on each head as it is made" : ", in the region before it";
}

std::vector<backend::Placement> CpuExecutable::placements() const {
  std::vector<backend::Placement> result;
  for (const Stage& stage : stages_) {
    for (std::size_t i = stage.first; i < stage.end; ++i) {
      const backend::Operation& operation = context_.program.operations[i];
      const std::vector<backend::Tensor> written = backend::outputs(operation);
      const Executor& executor = *planned_[i].executor;
      std::string implementation = executor.implementation();
      if (!executor.borrowed()) {
        implementation = std::string("cpu ") + context_.kernels.name +
                         (implementation.empty() ? "" : " " + implementation);
      }
      implementation += way(stage, i);
      const auto site = [&](backend::Tensor tensor) {
        return context_.program.tensors[static_cast<std::size_t>(tensor.id)].name;
      };
      result.push_back({std::string(backend::operation_name(operation)),
                        written.empty() ? "" : site(written.front()), std::move(implementation),
                        executor.format()});
    }
  }
  return result;
}

std::size_t CpuExecutable::scratch_bytes() const noexcept {
  std::size_t bytes = context_.scratch_bytes();
  for (const Planned& planned : planned_) bytes += planned.executor->scratch_bytes();
  return bytes;
}

}  // namespace lemma::cpu
