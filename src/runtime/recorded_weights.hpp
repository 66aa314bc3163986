// SPDX-License-Identifier: Apache-2.0
// A model's program recorded once more, only to learn which operation has which weights: backends
// keep theirs to themselves. Nothing is copied or packed.
#pragma once

#include <vector>

#include "backend/backend.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::runtime {

struct RecordedWeights {
  backend::Program program;               ///< the model's, with ids of `matrices`
  std::vector<weights::Matrix> matrices;  ///< by WeightId
};

/// The matrices live as long as `model`.
RecordedWeights record_weights(const LoadedModel& model);

}  // namespace lemma::runtime
