// SPDX-License-Identifier: Apache-2.0
// Decoder: the one forward pass. It walks a plan and records the operations of one step into a
// Program; a backend prepares and runs it. It knows no architecture, no format and no device.
#pragma once

#include <cstddef>

#include "backend/backend.hpp"
#include "model/plan.hpp"
#include "model/weight_binder.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::model {

/// Records `plan`: binds its weights from `checkpoint` into `backend` and returns the program.
/// Shapes are checked against the plan; a mismatch throws kBadFile naming tensor and shapes.
backend::Program record(const Plan& plan, WeightBinder& weights);
backend::Program record(const Plan& plan, const weights::Checkpoint& checkpoint,
                        backend::Backend& backend);

/// Records a draft block of `plan` as a program by itself. A row of its steps has the token that
/// the block reads, and comes with the row that the model, or the block before, handed on for the
/// token before it (Program::handed_on, Step::received).
backend::Program record_draft(const Plan& plan, std::size_t block, WeightBinder& weights);

}  // namespace lemma::model
