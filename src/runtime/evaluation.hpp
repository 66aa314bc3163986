// SPDX-License-Identifier: Apache-2.0
// Evaluation: known tokens through the model, with the logits of every position. Used by `logits`,
// `check`, `eval` and the golden tests. How the tokens are cut into steps is the caller's choice
// and, by lemma's promise, does not change the bits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/step_runner.hpp"

namespace lemma::runtime {

struct Chunking {
  std::vector<std::uint32_t> cuts;              ///< a step ends before each of these positions
  bool stepwise = false;                        ///< one token a step
  std::optional<std::uint32_t> generated_from;  ///< tokens from here on count as generated
};

/// The half-open steps [begin, end) into which `tokens` positions fall: cut at every cut, at
/// generated_from, and at multiples of `max_rows` after each. Throws kUsage for a cut outside
/// (0, tokens).
std::vector<std::pair<std::uint32_t, std::uint32_t>> steps_of(std::uint32_t tokens,
                                                              const Chunking& chunking,
                                                              std::uint32_t max_rows);

/// Called for each position in ascending order; the logits [V] are valid during the call.
using LogitsSink = std::function<void(std::uint32_t position, std::span<const float> logits)>;

/// Evaluates `tokens` as the continuation of `sequence` (usually empty). Throws kUsage for an id
/// outside the vocabulary, kContextFull when they do not fit, and what a step failed with.
/// Without a sink no logits are computed; a model without a head takes none (kUnsupported). One
/// whose rows look ahead takes its prompt in one step: kUnsupported for cuts, kContextFull for a
/// prompt that is longer than a step.
void evaluate(const LoadedModel& model, StateSpace& space, state::Sequence& sequence,
              std::span<const std::int32_t> tokens, const Chunking& chunking,
              const LogitsSink& sink);

}  // namespace lemma::runtime
