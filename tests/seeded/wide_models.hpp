// SPDX-License-Identifier: Apache-2.0
// Three models of width 512, in memory, whose matrices are in any one format: wide enough for whole
// blocks of each, so that they run the kernels that real files do, and small enough to be run
// often.
//
//   kDense     attention, 8 heads on 4 of K/V                       gated SiLU
//   kExperts   attention, 8 heads on 2 of K/V, normed heads         2 of 8 experts, one shared
//   kHybrid    Gated DeltaNet; attention with a window and sinks    gated SiLU; 2 of 8 experts
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/plan.hpp"
#include "seeded_weights.hpp"

namespace lemma::test {

enum class WideKind : std::uint8_t { kDense, kExperts, kHybrid };

struct WideModel {
  std::unique_ptr<SeededWeights> weights;
  model::Plan plan;
};

inline constexpr std::uint32_t kWideVocabulary = 96, kWideContext = 64;

/// A matrix's rows are 61 different ones over and over, beginning elsewhere for each name: the
/// encoders of some formats search, and what they find is kept for all models of a format.
WideModel make_wide(WideKind kind, weights::Format format);

/// 40 seeded ids: more rows than any tile is tall, three pages of 16, five windows of 8.
std::vector<std::int32_t> wide_tokens();

}  // namespace lemma::test
