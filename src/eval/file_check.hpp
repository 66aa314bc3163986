// SPDX-License-Identifier: Apache-2.0
// What is in a checkpoint's tensors, without running it: whether every number is finite, a checksum
// of every tensor's bytes, and how two checkpoints differ. For `lemma show --verify` and `--diff`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::eval {

struct TensorCheck {
  std::string name;
  weights::Format format = weights::Format::kF32;
  std::uint64_t checksum = 0;            ///< XXH3-64 of the bytes as the file holds them
  std::uint64_t bad_rows = 0;            ///< rows with a number that is not finite
  std::optional<std::uint64_t> bad_row;  ///< the first of them
  double rms = 0;                        ///< root of the mean square of the finite numbers
  float largest = 0;                     ///< magnitude
};

/// Reads all of every tensor, on `threads` threads.
std::vector<TensorCheck> verify(const weights::Checkpoint& checkpoint, int threads,
                                const base::Progress& progress);

struct TensorDifference {
  std::string name;
  std::string what;  ///< "only in the first", "shape [2, 4] and [4, 2]"; empty: numbers differ
  weights::Format format = weights::Format::kF32, other_format = weights::Format::kF32;
  double relative_rms = 0;  ///< of the difference over the first
  float largest = 0;        ///< magnitude of a difference
};

struct CheckpointDifference {
  std::vector<std::string> keys;  ///< "llama.block_count: 2 and 4", "a.key: only in the second"
  std::vector<TensorDifference> tensors;
  std::size_t equal = 0;  ///< tensors with the same bytes
};

/// What differs between two checkpoints: keys, and tensors by name.
CheckpointDifference difference(const weights::Checkpoint& first, const weights::Checkpoint& second,
                                int threads, const base::Progress& progress);

}  // namespace lemma::eval
