// SPDX-License-Identifier: Apache-2.0
// Capture: what stands at named sites of the forward pass, as f32 rows [T, width] in a safetensors
// file that other tools read. Each site is a tensor of its own name; the tokens are the I32 tensor
// "tokens" [T]; the metadata name the model and the backend. Rows go to the file as they come, so
// that memory does not grow with the text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eval/model_run.hpp"

namespace lemma::eval {

/// The tensors of `program` whose sites match one of `patterns` (base/wildcard.hpp), in the
/// program's order. Throws kUsage for a pattern that matches none.
std::vector<std::int32_t> matching_sites(const backend::Program& program,
                                         std::span<const std::string> patterns);

/// What a file of activations says of its origin.
std::vector<std::pair<std::string, std::string>> origin(const runtime::LoadedModel& model);

/// Evaluates `tokens` and writes the rows of `sites` to `path`; with `folder`, `path` is a folder
/// (made where it is missing) and each site goes to a file SITE.safetensors in it. Files appear
/// when all rows are written. Throws as runtime::evaluate, and kIo.
void capture(ModelRun& run, std::span<const std::int32_t> tokens,
             std::span<const std::int32_t> sites, const std::filesystem::path& path, bool folder);

}  // namespace lemma::eval
