// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of one row of raw logits: natural, log-softmax accumulated in f64, before any
// bias, penalty or temperature. All are <= 0.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lemma/engine.hpp"

namespace lemma::runtime {

struct RowProbabilities {
  double chosen = 0;                  ///< of the token that was asked for
  std::vector<TokenProbability> top;  ///< best first, lower ids first among equals
};

/// `chosen` lies within the row; at most V tokens are listed.
RowProbabilities log_probabilities(std::span<const float> logits, TokenId chosen, std::size_t top);

}  // namespace lemma::runtime
