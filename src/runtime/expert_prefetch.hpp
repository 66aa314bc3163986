// SPDX-License-Identifier: Apache-2.0
// ExpertPrefetch: an observer that learns which experts a model chooses and asks the system to read
// those that a layer will likely choose next, before its router has said so. It hands out advice
// about pages of the mapped file and touches no row: whatever it guesses, results are the same.
//
// A guess is made while one sequence is decoded. A prefill is learned from; in steps of several
// sequences nothing is guessed, since most experts are needed anyway. Experts that a backend has
// packed into memory of its own are passed over; where that is all of them, the constructor says
// so.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "algorithm/ffn/expert_predictor.hpp"
#include "backend/backend.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::runtime {

/// How many experts each layer of `program` chooses; none where that differs, or where there are no
/// experts: what an ExpertPrefetch refuses.
std::optional<std::uint32_t> chosen_experts(const backend::Program& program);

class ExpertPrefetch final : public backend::Observer {
 public:
  /// Names experts of a layer; what is no expert of it is passed over.
  using Guess = std::function<std::vector<std::uint32_t>(std::uint32_t layer)>;
  /// Told of the bytes of one matrix of an expert that was named.
  using Fetch = std::function<void(std::span<const std::byte>)>;

  /// When guesses are acted on. A wrong one costs a read that keeps others waiting.
  enum class Eagerness : std::uint8_t {
    kAlways,
    kWhenRight,  ///< while at least half of the experts that were named so far were chosen
  };

  /// At most `most` experts of a layer are named. Throws kUnsupported for a model without experts
  /// or with layers that route differently. `model` must outlive this.
  ExpertPrefetch(const LoadedModel& model, std::uint32_t most,
                 Eagerness eagerness = Eagerness::kAlways);
  /// The same with another guess (none: the predictor's) and another use of it.
  ExpertPrefetch(const LoadedModel& model, std::uint32_t most, Guess guess, Fetch fetch);

  bool wants(const backend::Program::Site& site) override;
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> rows) override;

  const algorithm::PredictorStatistics& statistics() const noexcept {
    return predictor_.statistics();
  }
  /// Of the statistics `wanted` and `hits`, as of the last whole token; from any thread.
  std::uint64_t chosen() const noexcept { return wanted_.load(std::memory_order_relaxed); }
  std::uint64_t foreseen() const noexcept { return hits_.load(std::memory_order_relaxed); }

 private:
  struct Layer {
    std::uint32_t number = 0;
    std::int32_t ids = -1;  ///< tensor
    std::string site;
    /// Of gate, up and down those that are read in the file; all experts one after the other.
    std::vector<weights::Matrix> stacks;
  };

  void fetch(const Layer& layer);
  void decode(std::size_t index, std::span<const float> ids);
  void learn(std::size_t index, std::span<const float> ids, std::size_t tokens);

  std::vector<Layer> layers_;
  std::uint32_t experts_ = 0, chosen_ = 0;
  algorithm::ExpertPredictor predictor_;
  Guess guess_;
  Fetch fetch_;
  Eagerness eagerness_ = Eagerness::kAlways;
  std::size_t next_ = 0;                ///< layer that an open token comes to next
  bool open_ = false;                   ///< a token of the predictor is
  std::vector<std::uint32_t> prefill_;  ///< [layers so far][tokens][k]
  std::atomic<std::uint64_t> wanted_{0}, hits_{0};
};

/// Where some experts stay in the file: one that names as many as a layer chooses, while it is
/// right. Null where none do, or the layers route differently.
std::unique_ptr<ExpertPrefetch> prefetch_of_file(const LoadedModel& model);

}  // namespace lemma::runtime
