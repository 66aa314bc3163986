// SPDX-License-Identifier: Apache-2.0
// WeightBinder: gives a plan's weights to a backend, each once. The programs of one model (its own
// and those of its draft blocks) are recorded with the same binder, so that what they share, such
// as an output matrix, is held and packed once. The checkpoint and the backend must outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "backend/backend.hpp"
#include "model/plan.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::model {

class WeightBinder {
 public:
  WeightBinder(const weights::Checkpoint& checkpoint, backend::Backend& backend)
      : checkpoint_(checkpoint), backend_(&backend) {}
  virtual ~WeightBinder() = default;
  WeightBinder(const WeightBinder&) = delete;
  WeightBinder& operator=(const WeightBinder&) = delete;

  /// The weight [rows, cols] for `use`, kNoWeight for an empty `ref`. Throws kBadFile where the
  /// tensor has another shape.
  backend::WeightId bind(const WeightRef& ref, std::uint64_t rows, std::uint64_t cols,
                         backend::WeightUse use);
  /// A table [vocabulary, k] of experts by token id, kNoWeight for an empty `ref`. Throws kBadFile
  /// naming the token whose row is no choice of k experts.
  backend::WeightId bind_routes(const WeightRef& ref, std::uint64_t vocabulary,
                                const algorithm::RoutingSpec& spec);

  const weights::Checkpoint& checkpoint() const noexcept { return checkpoint_; }

 protected:
  explicit WeightBinder(const weights::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  virtual backend::WeightId take(const WeightRef& ref, std::uint64_t rows, std::uint64_t cols,
                                 backend::WeightUse use);

 private:
  using Key = std::tuple<std::string, View::Kind, std::uint64_t, std::uint64_t, std::uint64_t,
                         std::uint64_t, std::uint64_t, backend::WeightUse>;
  const weights::Checkpoint& checkpoint_;
  backend::Backend* backend_ = nullptr;
  std::map<Key, backend::WeightId> bound_;
};

class WeightNotes final : public WeightBinder {
 public:
  struct Note {
    WeightRef ref;
    std::uint64_t rows = 0, cols = 0;
    backend::WeightUse use = backend::WeightUse::kMatrix;
  };

  explicit WeightNotes(const weights::Checkpoint& checkpoint) : WeightBinder(checkpoint) {}
  const std::vector<Note>& notes() const noexcept { return notes_; }  ///< by WeightId

 private:
  backend::WeightId take(const WeightRef& ref, std::uint64_t rows, std::uint64_t cols,
                         backend::WeightUse use) override;
  std::vector<Note> notes_;
};

}  // namespace lemma::model
