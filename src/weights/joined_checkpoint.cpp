// SPDX-License-Identifier: Apache-2.0
#include "weights/joined_checkpoint.hpp"

#include <utility>

#include "base/raise.hpp"

namespace lemma::weights {

JoinedCheckpoint::JoinedCheckpoint(std::unique_ptr<const Checkpoint> first,
                                   std::unique_ptr<const Checkpoint> second, Metadata metadata,
                                   const Naming& naming)
    : first_(std::move(first)),
      second_(std::move(second)),
      metadata_(std::move(metadata)),
      tensors_(first_->tensors()),
      files_(first_->files()) {
  for (const TensorInfo& tensor : second_->tensors())
    if (std::optional<std::string> name = naming(tensor)) {
      tensors_.push_back(tensor);
      tensors_.back().name = std::move(*name);
    }
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!index_.emplace(tensors_[i].name, i).second)
      base::raise(ErrorKind::kBadFile, "both files have a tensor '{}'", tensors_[i].name);
  files_.insert(files_.end(), second_->files().begin(), second_->files().end());
}

const TensorInfo* JoinedCheckpoint::find(std::string_view name) const noexcept {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace lemma::weights
