// SPDX-License-Identifier: Apache-2.0
// The golden models: which variants there are, their known logits, and how a test opens one. The
// data is described in the README beside it; model_runs.hpp has what tests do with an open model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model_runs.hpp"

namespace lemma::test {

/// The variants of the shared data whose architectures are supported.
std::vector<std::string> golden_variants();
/// The folders of this repository's own golden models, in tests/goldens.
std::vector<std::filesystem::path> own_goldens();

/// What is known of a variant.
struct Golden {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;    ///< [T, V] of the independent engine, or its f64 reference's
  double tolerance = 0;         ///< largest absolute difference allowed
  std::filesystem::path model;  ///< the GGUF file
};
Golden read_golden(const std::filesystem::path& folder);

/// Raw little-endian f32.
std::vector<float> read_f32(const std::filesystem::path& path);

using GoldenRun = ModelUnderTest;
using GoldenOptions = RunOptions;
GoldenRun open_golden(const std::filesystem::path& model, const GoldenOptions& options);

}  // namespace lemma::test
