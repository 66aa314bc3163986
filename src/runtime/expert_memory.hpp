// SPDX-License-Identifier: Apache-2.0
// Which experts are packed into memory and which stay in the file. A matrix of which every step
// needs all is packed in any case; the stacks of experts are packed, first layers first, while they
// fit beside it and the state. Of a stack that stays only the chosen experts' pages are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/plan.hpp"
#include "runtime/loaded_model.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::runtime {

struct ExpertPlacement {
  std::vector<std::string> in_file;  ///< tensors, sorted
  std::uint64_t bytes = 0;           ///< of them
};

/// For the cpu backend, `options.memory` bytes, and states of `context` positions.
ExpertPlacement place_experts(const model::Plan& plan, const weights::Checkpoint& checkpoint,
                              std::uint32_t context, const LoadOptions& options);

}  // namespace lemma::runtime
