// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/reference_executable.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace lemma::reference {

using backend::Tensor;

ReferenceExecutable::ReferenceExecutable(const backend::Program& program,
                                         const WeightSource& weights, backend::HostState& state,
                                         const backend::PrepareOptions& options)
    : program_(program),
      state_(state),
      arena_(program, options.max_rows),
      operations_({program, weights, state, arena_}, program.operations, options.max_rows,
                  options.max_logit_rows ? options.max_logit_rows : options.max_rows),
      observers_(program.tensors.size()),
      segment_of_(options.max_rows) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    for (backend::Observer* observer : options.observers)
      if (observer->wants(program.tensors[t])) observers_[t].push_back(observer);
  results_.reserve(options.max_rows);
}

std::span<const backend::SegmentResult> ReferenceExecutable::run(
    const backend::Step& step) noexcept {
  LEMMA_CHECK(step.tokens.size() <= segment_of_.size());
  results_.assign(step.segments.size(), {});
  for (std::size_t s = 0; s < step.segments.size(); ++s)
    std::fill_n(segment_of_.begin() + step.segments[s].first_row, step.segments[s].rows,
                static_cast<std::uint32_t>(s));
  for (const backend::Segment& segment : step.segments) state_.begin_blocks(*segment.sequence);
  const auto failed = [this](std::size_t row, Tensor tensor) { fail(row, tensor); };
  for (const backend::Operation& operation : program_.operations) {
    operations_.run(operation, step, failed);
    observe(operation, step);
  }
  return results_;
}

void ReferenceExecutable::observe(const backend::Operation& operation,
                                  const backend::Step& step) noexcept {
  for (const Tensor tensor : backend::outputs(operation)) {
    const auto id = static_cast<std::size_t>(tensor.id);
    for (backend::Observer* observer : observers_[id])
      observer->observe(tensor.id, program_.tensors[id], step,
                        {arena_.data(tensor), step.tokens.size() * tensor.width});
  }
}

void ReferenceExecutable::fail(std::size_t row, Tensor tensor) noexcept {
  backend::SegmentResult& result = results_[segment_of_[row]];
  if (result.status == backend::SegmentStatus::kOk)
    result = {backend::SegmentStatus::kNonFinite, tensor.id};
}

std::span<const float> ReferenceExecutable::logits(std::size_t i) const noexcept {
  return operations_.logits(i);
}

std::vector<backend::Placement> ReferenceExecutable::placements() const {
  std::vector<backend::Placement> result;
  for (const backend::Operation& operation : program_.operations) {
    const std::vector<Tensor> written = backend::outputs(operation);
    result.push_back(
        {std::string(backend::operation_name(operation)),
         written.empty() ? "" : program_.tensors[static_cast<std::size_t>(written.front().id)].name,
         "reference", ""});
  }
  return result;
}

std::size_t ReferenceExecutable::scratch_bytes() const noexcept {
  return arena_.bytes() + operations_.scratch_bytes();
}

}  // namespace lemma::reference
