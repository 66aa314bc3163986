// SPDX-License-Identifier: Apache-2.0
// Steering vectors out of two sets of prompts: at each site the mean row of the one set minus the
// mean row of the other. What the sets have in common falls away; the difference points from the
// second set to the first. (Activation addition and contrastive means: Turner et al. 2023,
// arXiv:2308.10248; Rimsky et al. 2023, arXiv:2312.06681.)
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "eval/model_run.hpp"

namespace lemma::eval {

/// Which rows of a prompt count. Each prompt weighs the same, however many rows it gives.
enum class SteerRows : std::uint8_t {
  kLast,  ///< its last token's, where the model has read all of it
  kAll,   ///< the mean over all of its tokens
};

using Prompts = std::vector<std::vector<std::int32_t>>;

/// The vectors [width] of `sites`, in their order. Neither set may be empty, nor a prompt in it.
/// Throws as runtime::evaluate, and kUsage for a site whose rows are no continuous numbers.
std::vector<std::vector<float>> steering_vectors(ModelRun& run, std::span<const std::int32_t> sites,
                                                 const Prompts& positive, const Prompts& negative,
                                                 SteerRows rows, const ProgressCallback& progress);

/// Writes them as a steering file: an F32 tensor for each site, under its name.
void write_steering(const runtime::LoadedModel& model, std::span<const std::int32_t> sites,
                    std::span<const std::vector<float>> vectors, const std::filesystem::path& path);

}  // namespace lemma::eval
