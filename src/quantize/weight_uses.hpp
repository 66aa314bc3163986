// SPDX-License-Identifier: Apache-2.0
// Weight uses: what a model does with each of its tensors, learned by recording the model with
// notes in a backend's place. A tensor that is multiplied with activations as it stands may
// become any format; one that is looked up by position, read as a vector, or seen through a view
// that reorders it, may not.
#pragma once

#include <map>
#include <set>
#include <string>

#include "model/plan.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::quantize {

struct WeightUses {
  std::set<std::string, std::less<>> quantizable;  ///< names of tensors
  bool tied = false;                               ///< the embedding serves as the head
  std::uint32_t layers = 0;
};

/// Throws what planning the model and the shapes of its weights throw. Touches no tensor's bytes.
WeightUses weight_uses(const weights::Checkpoint& checkpoint);

}  // namespace lemma::quantize
