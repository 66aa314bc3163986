// SPDX-License-Identifier: Apache-2.0
// RouteRecorder: an observer that notes the experts of every token and layer, and what each layer's
// router would have said one layer earlier, as a RouteTrace. The look-ahead costs a router's
// product per layer; nothing is replaced, so the run is what it is without.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "eval/model_run.hpp"
#include "eval/route_trace.hpp"

namespace lemma::eval {

class RouteRecorder final : public backend::Observer {
 public:
  /// Throws kUnsupported for a model without experts, or whose layers do not route alike and one
  /// behind the other.
  explicit RouteRecorder(const runtime::LoadedModel& model);

  bool wants(const backend::Program::Site& site) override;
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> rows) override;

  /// What was noted of all steps so far. Steps of one sequence, from its begin on, are expected.
  RouteTrace take();

 private:
  struct Layer {
    std::int32_t ids = -1, in = -1;     ///< tensors: the route, and what the router reads
    std::vector<float> matrix, bias;    ///< the router, [E, D] and [E]; empty: unknown
    std::vector<std::uint16_t> routes;  ///< [T, k]
    std::vector<std::uint16_t> scores;  ///< [T, E]
  };

  void score(Layer& layer, std::span<const float> rows, std::size_t width) const;

  RouteTrace trace_;
  std::vector<std::string> names_;  ///< of the tensors, by id
  std::vector<Layer> layers_;
};

/// Runs `tokens` as one sequence and returns its routes. Throws as runtime::evaluate.
RouteTrace record_routes(ModelRun& run, std::span<const std::int32_t> tokens);

}  // namespace lemma::eval
