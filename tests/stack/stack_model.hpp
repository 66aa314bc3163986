// SPDX-License-Identifier: Apache-2.0
// The stack: one small model that holds every token mixer and every kind of feed-forward, ten
// layers of width 64, wired in each of the three residual styles. No architecture has such a model;
// its plan is written here, so that what composes on paper is run together.
//
//   layer  token mixer                                    state
//   0      GQA, window 8, sinks                           rows that expire
//   1      GQA, gated, part of each head turned           rows
//   2      latent, the 12 best tokens                     latents, index keys
//   3      latent, the tokens that layer 2 chose          latents
//   4      GQA over the 3 best blocks of 4 keys           rows, index keys
//   5      compressed sparse, the 3 best of entries of 4  window rows, entries, two frontiers
//   6      compressed sparse, all entries of 16           window rows, entries, frontier
//   7      Gated DeltaNet, kernel 4                       matrix, history
//   8      Kimi delta attention, decay bounded by -5      matrix, history
//   9      gated latent without positions, pools of 4     latents, pools, frontier
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/plan.hpp"
#include "seeded_weights.hpp"

namespace lemma::test {

enum class Wiring : std::uint8_t { kPlain, kThreeStreams, kBlocksOfTwo };

/// Positions that the stack was made for.
inline constexpr std::uint32_t kStackContext = 160;
inline constexpr std::uint32_t kStackVocabulary = 96;

struct StackModel {
  std::unique_ptr<SeededWeights> weights;
  model::Plan plan;
};

/// Each wiring pairs the token mixers with other feed-forwards. Matrices are in `matrices`, whose
/// blocks may have at most 32 elements.
StackModel make_stack(Wiring wiring, weights::Format matrices = weights::Format::kF32);
/// Multiplies every attention's scores.
void scale_scores(model::Plan& plan, float factor);

/// Lengths at which something ends, begins or fills up in some layer, ascending; see appendix B of
/// the contract: around the convolution's kernel, the window, compression, blocks, selections,
/// cells of 64, what a window keeps, and the context.
std::vector<std::uint32_t> stack_boundaries();

/// kStackContext seeded ids.
std::vector<std::int32_t> stack_tokens();

}  // namespace lemma::test
