// SPDX-License-Identifier: Apache-2.0
// Decoder: the one forward pass. It walks a plan and records the operations of one step into a
// Program; a backend prepares and runs it. It knows no architecture, no format and no device.
#pragma once

#include "backend/backend.hpp"
#include "model/plan.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::model {

/// Records `plan`: binds its weights from `checkpoint` into `backend` and returns the program.
/// Shapes are checked against the plan; a mismatch throws kBadFile naming tensor and shapes.
backend::Program record(const Plan& plan, const weights::Checkpoint& checkpoint,
                        backend::Backend& backend);

}  // namespace lemma::model
