// SPDX-License-Identifier: Apache-2.0
// JoinedCheckpoint: one model whose tensors lie in two checkpoints, such as a model and a file with
// its draft block. What joins, and under which name, is the caller's decision; the bytes stay where
// they are.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weights/checkpoint.hpp"

namespace lemma::weights {

class JoinedCheckpoint final : public Checkpoint {
 public:
  /// The name under which a tensor of the second checkpoint joins; nothing: it does not.
  using Naming = std::function<std::optional<std::string>(const TensorInfo&)>;

  /// Throws kBadFile where a name appears twice.
  JoinedCheckpoint(std::unique_ptr<const Checkpoint> first,
                   std::unique_ptr<const Checkpoint> second, Metadata metadata,
                   const Naming& naming);

  const Metadata& metadata() const noexcept override { return metadata_; }
  const std::vector<TensorInfo>& tensors() const noexcept override { return tensors_; }
  const TensorInfo* find(std::string_view name) const noexcept override;
  const std::vector<std::filesystem::path>& files() const noexcept override { return files_; }

 private:
  std::unique_ptr<const Checkpoint> first_, second_;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;  ///< views into tensors_
  std::vector<std::filesystem::path> files_;
};

}  // namespace lemma::weights
