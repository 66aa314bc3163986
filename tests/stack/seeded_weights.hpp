// SPDX-License-Identifier: Apache-2.0
// Weights in memory, seeded by their names: a checkpoint that no file holds, for plans that no
// architecture describes. What a tensor holds depends on its name and shape alone, not on when it
// was added.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "weights/checkpoint.hpp"
#include "weights/view.hpp"

namespace lemma::test {

class SeededWeights final : public weights::Checkpoint {
 public:
  explicit SeededWeights(weights::Format matrices) : matrices_(matrices) {}

  /// Uniform in +-sqrt(3 / cols) * scale: with scale 1, rows keep the size of what they multiply.
  weights::WeightRef matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols,
                            float scale = 1.f);
  /// The same, always in f32.
  weights::WeightRef precise(const std::string& name, std::uint64_t rows, std::uint64_t cols,
                             float scale = 1.f);
  /// Uniform in [low, high), f32.
  weights::WeightRef vector(const std::string& name, std::uint64_t size, float low, float high);
  /// Rows of `chosen` distinct numbers below `bound`, as i32.
  weights::WeightRef table(const std::string& name, std::uint64_t rows, std::uint32_t chosen,
                           std::uint32_t bound);
  /// A tensor whose bytes the caller has made.
  weights::WeightRef stored(const std::string& name, std::vector<std::uint64_t> shape,
                            weights::Format format, std::vector<std::byte> bytes);

  const weights::Metadata& metadata() const noexcept override { return metadata_; }
  const std::vector<weights::TensorInfo>& tensors() const noexcept override { return tensors_; }
  const weights::TensorInfo* find(std::string_view name) const noexcept override;
  const std::vector<std::filesystem::path>& files() const noexcept override { return files_; }

 private:
  weights::WeightRef uniform(const std::string& name, std::vector<std::uint64_t> shape,
                             weights::Format format, float low, float high);

  weights::Format matrices_;
  weights::Metadata metadata_;
  std::vector<std::filesystem::path> files_;
  std::vector<weights::TensorInfo> tensors_;
  std::deque<std::vector<std::byte>> bytes_;
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace lemma::test
