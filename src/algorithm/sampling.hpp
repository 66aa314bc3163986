// SPDX-License-Identifier: Apache-2.0
// Sampling: from the logits of one row to one token id, by a fixed and documented order:
//   logit bias -> penalties -> fence (excluded ids) -> temperature -> top-k -> top-p -> min-p ->
//   draw.
// Randomness is one xorshift64* stream per request: temperature 0 draws nothing, any other draws
// exactly once per token, so a seed gives the same tokens in any batch.
// Rules and sources: docs/contract.md, "Sampling".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lemma/sampling.hpp"

namespace lemma::algorithm {

/// The public struct is the spec: one definition for every front end.
using SamplingSpec = lemma::Sampling;

/// Throws kUsage naming the field, its value and its range; NaN is refused everywhere.
void validate(const SamplingSpec& spec);

/// xorshift64*; state 0 becomes 0x9e3779b97f4a7c15.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept;
  std::uint64_t next() noexcept;
  float uniform() noexcept;  ///< in [0, 1): the top 24 bits / 2^24

 private:
  std::uint64_t state_;
};

struct Candidate {
  std::int32_t id;
  float logit;        ///< after bias, penalties and temperature
  float probability;  ///< within the kept set
};

/// What each stage left, for a reader who wants to see it; filled on request.
struct SamplingTrace {
  std::vector<Candidate> kept;  ///< in (logit descending, id ascending) order
};

/// Chooses a token. `logits` [V] are the raw logits of the row; `history` the ids that penalties
/// look at (prompt and generated). `fence`, if not empty, holds V flags: 0 excludes the id; a
/// single id left is forced and wins over its bias. The spec must have been validated.
/// Throws kNonFinite on NaN or +inf logits, kUsage when every id is excluded or when a bias or the
/// history names an id that is no token.
std::int32_t sample(const SamplingSpec& spec, std::span<const float> logits,
                    std::span<const std::int32_t> history, std::span<const std::uint8_t> fence,
                    Random& random, SamplingTrace* trace = nullptr);

/// log softmax of `logits` at `id`, accumulated in f64.
double log_probability(std::span<const float> logits, std::int32_t id);

}  // namespace lemma::algorithm
