// SPDX-License-Identifier: Apache-2.0
// How tests run a whole model: a model with pages for some sequences, its logits when tokens are
// cut, interleaved or taken back in the ways that must not change a bit, and what differs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/evaluation.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::test {

/// True under LEMMA_DEEP=1, which `./check --deep` sets: sweeps that take minutes run whole.
bool deep();

struct RunOptions {
  BackendKind backend = BackendKind::kCpu;
  int threads = 1;
  NumericsMode numerics = NumericsMode::kFast;
  std::uint32_t page_size = 16;  ///< small, so that short texts cross pages
  std::uint32_t sequences = 1;
  algorithm::RowFormat format = algorithm::RowFormat::kF32;
};
runtime::LoadOptions load_options(const RunOptions& options);

struct ModelUnderTest {
  std::unique_ptr<runtime::LoadedModel> model;
  std::unique_ptr<runtime::StateSpace> space;
};
ModelUnderTest under_test(std::unique_ptr<runtime::LoadedModel> model, const RunOptions& options);

/// Logits [T, V] of `tokens` in a new sequence, cut as `chunking` says.
std::vector<float> evaluate(ModelUnderTest& run, std::span<const std::int32_t> tokens,
                            const runtime::Chunking& chunking = {});

/// Logits [T, V] of three sequences that take the same tokens in shared steps of 1, 5 and 11 rows
/// each, so that each stands at another place. The run needs pages for three.
std::vector<std::vector<float>> evaluate_together(ModelUnderTest& run,
                                                  std::span<const std::int32_t> tokens);

/// Logits [T, V] of `tokens` in a new sequence that at each of `lengths` (ascending) takes in two
/// rows of drafts, which are not the tokens that follow, and takes them back, and then goes on by
/// one decoded token. `lengths` must leave room for the drafts within the context.
std::vector<float> evaluate_with_drafts(ModelUnderTest& run, std::span<const std::int32_t> tokens,
                                        std::span<const std::uint32_t> lengths);

/// The largest absolute difference; infinity where the sizes differ or a value is not finite.
double largest_difference(std::span<const float> a, std::span<const float> b);

/// "" where all bits are equal, else the first row that differs and by how much.
std::string bit_difference(std::span<const float> expected, std::span<const float> found,
                           std::size_t row_width);

}  // namespace lemma::test
