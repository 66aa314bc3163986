// SPDX-License-Identifier: Apache-2.0
// The residual styles beside the plain sum: hyper-connections and the attention residual.
#include <algorithm>

#include "backend/reference/operations.hpp"

namespace lemma::reference {

void Operations::run(const backend::StreamsEnter& op) noexcept {
  for (std::size_t r = 0; r < rows(); ++r)
    algorithm::hyper_enter(op.spec, row(op.in, r), row(op.out, r));
}

void Operations::run(const backend::StreamsRead& op) noexcept {
  const std::span<const float> fn = decode(op.fn, 0, op.spec.coefficients(), matrix_);
  const algorithm::HyperConnectionWeights weights{fn, vector(op.base), vector(op.scale)};
  const std::span<float> scratch = grown(scratch_, op.spec.state_size());
  for (std::size_t r = 0; r < rows(); ++r) {
    if (!all_finite(row(op.in, r))) fail(r, op.in);
    algorithm::hyper_coefficients(op.spec, weights, row(op.in, r), scratch,
                                  row(op.coefficients, r));
    algorithm::hyper_reduce(op.spec, {op.spec, row(op.coefficients, r)}, row(op.in, r),
                            row(op.out, r));
  }
}

void Operations::run(const backend::StreamsWrite& op) noexcept {
  for (std::size_t r = 0; r < rows(); ++r)
    algorithm::hyper_merge(op.spec, {op.spec, row(op.coefficients, r)}, row(op.in, r),
                           row(op.branch, r), row(op.out, r));
}

void Operations::run(const backend::StreamsLeave& op) noexcept {
  if (op.fn == backend::kNoWeight) {
    for (std::size_t r = 0; r < rows(); ++r)
      algorithm::hyper_exit_mean(op.spec, row(op.in, r), row(op.out, r));
    return;
  }
  const std::span<const float> fn = decode(op.fn, 0, op.spec.streams, matrix_);
  const std::span<float> scratch = grown(scratch_, op.spec.state_size());
  for (std::size_t r = 0; r < rows(); ++r)
    algorithm::hyper_exit(op.spec, fn, vector(op.base), vector(op.scale)[0], row(op.in, r), scratch,
                          row(op.out, r));
}

void Operations::run(const backend::MixResidual& op) noexcept {
  const std::size_t width = op.out.width, blocks = op.blocks.size();
  const std::span<float> laid_aside = grown(gathered_, blocks * width);
  const std::span<float> scratch = grown(scratch_, width + blocks + 1);
  for (std::size_t r = 0; r < rows(); ++r) {
    if (!all_finite(row(op.current, r))) fail(r, op.current);
    auto to = laid_aside.begin();
    for (const backend::Tensor block : op.blocks) {
      const std::span<const float> from = row(block, r);
      to = std::copy(from.begin(), from.end(), to);
    }
    algorithm::attn_res_mix(op.spec, row(op.current, r), laid_aside, vector(op.norm),
                            vector(op.projection), scratch, row(op.out, r));
  }
}

}  // namespace lemma::reference
