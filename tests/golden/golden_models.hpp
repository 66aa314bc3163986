// SPDX-License-Identifier: Apache-2.0
// The golden models: which variants there are, their known logits, and how a test runs one. The
// data is described in the README beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/evaluation.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::test {

/// The variants whose architectures are supported.
std::vector<std::string> golden_variants();

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

/// A model opened for a test, with pages for some sequences.
struct GoldenRun {
  std::unique_ptr<runtime::LoadedModel> model;
  std::unique_ptr<runtime::StateSpace> space;
};
struct GoldenOptions {
  BackendKind backend = BackendKind::kCpu;
  int threads = 1;
  NumericsMode numerics = NumericsMode::kFast;
  std::uint32_t page_size = 16;  ///< small, so that 48 tokens cross pages
  std::uint32_t sequences = 1;
  algorithm::RowFormat format = algorithm::RowFormat::kF32;
};
GoldenRun open_golden(const std::filesystem::path& model, const GoldenOptions& options);

/// Logits [T, V] of `tokens` in a new sequence, cut as `chunking` says.
std::vector<float> evaluate(GoldenRun& run, std::span<const std::int32_t> tokens,
                            const runtime::Chunking& chunking = {});

/// The largest absolute difference; infinity where the sizes differ or a value is not finite.
double largest_difference(std::span<const float> a, std::span<const float> b);

/// "" where all bits are equal, else the first row that differs and by how much.
std::string bit_difference(std::span<const float> expected, std::span<const float> found,
                           std::size_t row_width);

}  // namespace lemma::test
