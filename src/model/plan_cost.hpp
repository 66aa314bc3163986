// SPDX-License-Identifier: Apache-2.0
// Cost: what a plan will need, worked out from the plan and the checkpoint's list of tensors before
// a byte is loaded: weights by format, state for a context, and an estimate of a step's scratch.
// Pure and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "algorithm/row_formats.hpp"
#include "algorithm/slot.hpp"
#include "model/plan.hpp"
#include "weights/checkpoint.hpp"
#include "weights/format.hpp"

namespace lemma::model {

struct CostOptions {
  std::uint32_t context = 0;  ///< positions of the one sequence; 0: what the model was made for
  algorithm::RowFormat row_format = algorithm::RowFormat::kF16;
  std::uint32_t step_rows = 512;  ///< the largest step, at most the context
  std::uint32_t logit_rows = 1;   ///< rows of a step that want logits
};

struct Cost {
  struct FormatShare {
    weights::Format format;
    std::uint64_t bytes = 0;
    std::uint64_t parameters = 0;
  };
  std::vector<FormatShare> weights;  ///< in the order of Format; a tied matrix counts once
  std::uint64_t weight_bytes = 0;
  std::uint64_t parameters = 0;

  std::uint32_t context = 0;
  std::uint64_t state_bytes = 0;          ///< pages that one sequence of `context` positions takes
  std::uint64_t state_formula_bytes = 0;  ///< rows alone, and how they add up
  std::string state_formula;

  /// What drafting adds, and only where it is done: weights that the model does not have anyway,
  /// and a state for each block.
  std::uint64_t draft_weight_bytes = 0, draft_state_bytes = 0;

  /// f32 rows that are alive at the same time in the widest site of a step, and the logits. A
  /// backend that fuses needs less, one that packs activations a little more.
  std::uint64_t scratch_bytes = 0;

  std::uint64_t total_bytes() const noexcept { return weight_bytes + state_bytes + scratch_bytes; }
};

/// Throws kBadFile where the plan names a tensor that the checkpoint lacks or a view beyond it, and
/// kUnsupported where the state cannot be laid out.
Cost cost_of(const Plan& plan, const weights::Checkpoint& checkpoint, const CostOptions& options);

/// Every weight that `plan` names, those of draft blocks last; none of them is empty. Valid as long
/// as the plan is not changed.
std::vector<const WeightRef*> weights_of(const Plan& plan);

/// The slots that a sequence needs, layer by layer, as the decoder numbers them.
algorithm::Slots slots_of(const Plan& plan);
algorithm::Slots slots_of(const DraftBlock& draft);

}  // namespace lemma::model
