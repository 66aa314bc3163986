// SPDX-License-Identifier: Apache-2.0
// Sampling parameters of one request. Stages run in this fixed order, here as in every front end:
//   logit bias -> penalties -> temperature -> top-k -> top-p -> min-p -> draw.
// A value out of range is refused when the request is made, never silently replaced.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace lemma {

struct Sampling {
  float temperature = 1.f;  ///< [0, 100]; 0: greedy, lowest id on ties, draws nothing
  std::int64_t top_k = 0;   ///< <= 0 or >= the vocabulary: off
  float top_p = 1.f;        ///< [0, 1]; 1: off; 0 keeps exactly the best
  float min_p = 0.f;        ///< [0, 1]; 0: off; keeps p >= min_p * best p
  float repetition_penalty =
      1.f;  ///< [0.01, 100]; 1: off; positive logits divided, negative multiplied
  float presence_penalty = 0.f;   ///< [-100, 100]; subtracted once from each token that occurred
  float frequency_penalty = 0.f;  ///< [-100, 100]; subtracted per occurrence
  std::vector<std::pair<std::int32_t, float>> logit_bias;  ///< (token, added); -inf excludes it
};

}  // namespace lemma
