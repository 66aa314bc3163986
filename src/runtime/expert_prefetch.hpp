// SPDX-License-Identifier: Apache-2.0
// ExpertPrefetch: an observer that learns which experts a model chooses and asks the system to read
// those that a layer will likely choose next, before its router has said so. It hands out advice
// about pages of the mapped file and touches no row: whatever it guesses, results are the same.
//
// A guess is made while one sequence is decoded. A prefill is learned from; in steps of several
// sequences nothing is guessed, since most experts are needed anyway. Where a backend packs experts
// into memory of its own the file is not read again and advice is in vain: the constructor says so.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "algorithm/ffn/expert_predictor.hpp"
#include "backend/backend.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::runtime {

class ExpertPrefetch final : public backend::Observer {
 public:
  /// Names experts of a layer; what is no expert of it is passed over.
  using Guess = std::function<std::vector<std::uint32_t>(std::uint32_t layer)>;
  /// Told of the bytes of one matrix of an expert that was named.
  using Fetch = std::function<void(std::span<const std::byte>)>;

  /// At most `most` experts of a layer are named. Throws kUnsupported for a model without experts
  /// or with layers that route differently. `model` must outlive this.
  ExpertPrefetch(const LoadedModel& model, std::uint32_t most);
  /// The same with another guess (none: the predictor's) and another use of it.
  ExpertPrefetch(const LoadedModel& model, std::uint32_t most, Guess guess, Fetch fetch);

  bool wants(const backend::Program::Site& site) override;
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> rows) override;

  const algorithm::PredictorStatistics& statistics() const noexcept {
    return predictor_.statistics();
  }

 private:
  struct Layer {
    std::uint32_t number = 0;
    std::int32_t ids = -1;  ///< tensor
    std::string site;
    std::vector<weights::Matrix> stacks;  ///< gate, up and down, all experts one after the other
  };

  void fetch(const Layer& layer);
  void decode(std::size_t index, std::span<const float> ids);
  void learn(std::size_t index, std::span<const float> ids, std::size_t tokens);

  std::vector<Layer> layers_;
  std::uint32_t experts_ = 0, chosen_ = 0;
  algorithm::ExpertPredictor predictor_;
  Guess guess_;
  Fetch fetch_;
  std::size_t next_ = 0;                ///< layer that an open token comes to next
  bool open_ = false;                   ///< a token of the predictor is
  std::vector<std::uint32_t> prefill_;  ///< [layers so far][tokens][k]
};

}  // namespace lemma::runtime
