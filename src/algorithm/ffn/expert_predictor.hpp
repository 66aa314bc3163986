// SPDX-License-Identifier: Apache-2.0
// The expert predictor: guesses which experts a layer will choose next, from how often they were
// chosen, what followed the previous token's choice, what followed the previous layer's choice, and
// a look ahead by the layer's own router. Its guesses say what to fetch early; they are never part
// of the mathematics, so a wrong one costs time and no more. Bookkeeping only: no weights, no I/O.
// One sequence at a time, on one thread. Rules: docs/contract.md, "Expert prediction".
//
//   predictor.begin_token();
//   for each layer: predictor.predict(layer, scores); ... predictor.observe(layer, route);
//   predictor.finish_token();
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lemma::algorithm {

struct ExpertPredictorSpec {
  std::uint32_t first_layer = 0;  ///< of consecutive layers with experts
  std::uint32_t layers = 0;
  std::uint32_t experts = 0;   ///< E
  std::uint32_t chosen = 0;    ///< k of a route
  std::uint32_t prefetch = 0;  ///< most experts of one prediction; 0: none is made
  // How much each signal counts, after it was stretched to [0, 1].
  float frequency = 0.15f, temporal = 0.30f, spatial = 0.20f, future_router = 0.35f;

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  friend bool operator==(const ExpertPredictorSpec&, const ExpertPredictorSpec&) = default;
};

/// How predictions turned out, over the routes that were asked for before they came.
struct PredictorStatistics {
  std::uint64_t evaluated = 0;  ///< routes
  std::uint64_t predicted = 0;  ///< experts that were named
  std::uint64_t hits = 0;       ///< of them, those that the route held
  std::uint64_t wanted = 0;     ///< experts that the routes held

  double precision() const noexcept { return predicted ? double(hits) / double(predicted) : 0.0; }
  double recall() const noexcept { return wanted ? double(hits) / double(wanted) : 0.0; }
  friend bool operator==(const PredictorStatistics&, const PredictorStatistics&) = default;
};

class ExpertPredictor {
 public:
  /// Throws kUnsupported for a spec that is wrong.
  explicit ExpertPredictor(const ExpertPredictorSpec& spec);

  /// Forgets the routes of the text so far, an open token's too, and keeps what was learned.
  void begin_sequence() noexcept;

  // All below throw kUsage, and change nothing, when called out of turn or with a wrong argument.
  void begin_token();
  /// The experts that `layer` will likely choose, likeliest first; empty if nothing is known.
  /// `router_scores` [E], if given, is the layer's router on a hidden state from before it; values
  /// that are not finite say nothing about their expert.
  std::vector<std::uint32_t> predict(std::uint32_t layer,
                                     std::span<const float> router_scores = {});
  /// Learns the route [k] of `layer`: distinct experts, once per layer and token.
  void observe(std::uint32_t layer, std::span<const std::uint32_t> route);
  void finish_token();

  /// Learns the routes of a prefill, [layers][tokens][k], as if they had come token by token.
  void replay(std::span<const std::uint32_t> routes);

  const PredictorStatistics& statistics() const noexcept { return statistics_; }
  void reset_statistics() noexcept { statistics_ = {}; }

 private:
  using Route = std::vector<std::uint32_t>;
  using Signal = std::vector<double>;

  /// How often each expert followed something; only those that did are stored.
  class Counts {
   public:
    void add(std::uint32_t expert);
    bool empty() const noexcept { return total_ == 0; }
    /// Adds count / total, or the count itself, to `signal`.
    void add_shares_to(Signal& signal) const;
    void add_counts_to(Signal& signal) const;

   private:
    struct Entry {
      std::uint32_t expert, count;
    };
    std::vector<Entry> entries_;  ///< by expert
    std::uint32_t total_ = 0;
  };
  struct Layer {
    Counts frequency;
    std::vector<Counts> temporal;  ///< [E]: after this expert at the previous token
    std::vector<Counts> spatial;   ///< [E]: after this expert in the previous layer
    std::vector<Route> recent;     ///< [E]: the last route after this expert in the previous layer
    Route previous, current;       ///< routes of the previous and of the open token; empty: none
    Route predicted;
    bool asked = false;
  };

  Layer& layer_at(std::uint32_t layer);
  void check_route(std::uint32_t layer, std::span<const std::uint32_t> route) const;
  void learn(std::size_t index, std::span<const std::uint32_t> route);
  Signal temporal_signal(const Layer& layer) const;
  Signal spatial_signal(std::size_t index) const;
  void add_stretched(const Signal& signal, float weight, Signal& sum) const;

  ExpertPredictorSpec spec_;
  std::vector<Layer> layers_;
  bool open_ = false;
  PredictorStatistics statistics_;
};

}  // namespace lemma::algorithm
