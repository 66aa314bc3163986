// SPDX-License-Identifier: Apache-2.0
#include "algorithm/ffn/expert_predictor.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithm/attention/require.hpp"
#include "base/raise.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "expert predictor";
/// A row of counts is halved at this total, so that old habits fade.
constexpr std::uint32_t kFullRow = 60000;
/// Signals whose values lie closer together than this say nothing (2^-23).
constexpr double kFlat = 1.1920928955078125e-07;

bool is_weight(float weight) {
  return std::isfinite(weight) && weight >= 0.f;
}

}  // namespace

void ExpertPredictorSpec::validate() const {
  constexpr std::uint32_t kMost = 65536;
  require(layers > 0 && layers <= kMost && first_layer <= kMost, kSpec, "layers", "1 to 65536",
          layers);
  require(experts > 0 && experts <= kMost, kSpec, "experts", "1 to 65536", experts);
  require(chosen > 0 && chosen <= experts, kSpec, "chosen", "1 to the number of experts", chosen);
  require(prefetch <= experts, kSpec, "prefetch", "at most the number of experts", prefetch);
  require(is_weight(frequency), kSpec, "frequency", "a finite weight >= 0", frequency);
  require(is_weight(temporal), kSpec, "temporal", "a finite weight >= 0", temporal);
  require(is_weight(spatial), kSpec, "spatial", "a finite weight >= 0", spatial);
  require(is_weight(future_router), kSpec, "future router", "a finite weight >= 0", future_router);
  require(frequency > 0.f || temporal > 0.f || spatial > 0.f || future_router > 0.f, kSpec,
          "weights", "one above 0", 0);
}

void ExpertPredictor::Counts::add(std::uint32_t expert) {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), expert,
                                   [](const Entry& e, std::uint32_t id) { return e.expert < id; });
  if (at != entries_.end() && at->expert == expert) {
    ++at->count;
  } else {
    entries_.insert(at, {expert, 1});
  }
  if (++total_ < kFullRow) return;
  total_ = 0;
  for (Entry& entry : entries_) total_ += entry.count /= 2;
  std::erase_if(entries_, [](const Entry& entry) { return entry.count == 0; });
}

void ExpertPredictor::Counts::add_shares_to(Signal& signal) const {
  for (const Entry& entry : entries_) signal[entry.expert] += double(entry.count) / total_;
}

void ExpertPredictor::Counts::add_counts_to(Signal& signal) const {
  for (const Entry& entry : entries_) signal[entry.expert] += double(entry.count);
}

ExpertPredictor::ExpertPredictor(const ExpertPredictorSpec& spec) : spec_(spec) {
  spec.validate();
  layers_.resize(spec.layers);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].temporal.resize(spec.experts);
    if (i == 0) continue;  // no layer precedes it
    layers_[i].spatial.resize(spec.experts);
    layers_[i].recent.resize(spec.experts);
  }
}

void ExpertPredictor::begin_sequence() noexcept {
  for (Layer& layer : layers_) {
    layer.previous.clear();
    layer.current.clear();
    layer.predicted.clear();
    layer.asked = false;
    for (Route& route : layer.recent) route.clear();
  }
  open_ = false;
}

void ExpertPredictor::begin_token() {
  if (open_) base::raise(ErrorKind::kUsage, "expert predictor: the token before is still open");
  open_ = true;
}

void ExpertPredictor::finish_token() {
  if (!open_) base::raise(ErrorKind::kUsage, "expert predictor: no token is open");
  for (Layer& layer : layers_) {
    layer.previous.swap(layer.current);
    layer.current.clear();
    layer.predicted.clear();
    layer.asked = false;
  }
  open_ = false;
}

ExpertPredictor::Layer& ExpertPredictor::layer_at(std::uint32_t layer) {
  if (!open_) base::raise(ErrorKind::kUsage, "expert predictor: no token is open");
  if (layer < spec_.first_layer || layer - spec_.first_layer >= spec_.layers) {
    base::raise(ErrorKind::kUsage, "expert predictor: expected a layer in [{}, {}), found {}",
                spec_.first_layer, spec_.first_layer + spec_.layers, layer);
  }
  Layer& found = layers_[layer - spec_.first_layer];
  if (!found.current.empty()) {
    base::raise(ErrorKind::kUsage, "expert predictor: layer {} was observed for this token", layer);
  }
  return found;
}

void ExpertPredictor::check_route(std::uint32_t layer, std::span<const std::uint32_t> route) const {
  if (route.size() != spec_.chosen) {
    base::raise(ErrorKind::kUsage, "expert predictor, layer {}: expected {} experts, found {}",
                layer, spec_.chosen, route.size());
  }
  for (std::size_t i = 0; i < route.size(); ++i) {
    if (route[i] >= spec_.experts) {
      base::raise(ErrorKind::kUsage,
                  "expert predictor, layer {}: expected experts below {}, found {}", layer,
                  spec_.experts, route[i]);
    }
    const auto before = route.first(i);
    if (std::find(before.begin(), before.end(), route[i]) != before.end()) {
      base::raise(ErrorKind::kUsage,
                  "expert predictor, layer {}: expected distinct experts, found {} twice", layer,
                  route[i]);
    }
  }
}

ExpertPredictor::Signal ExpertPredictor::temporal_signal(const Layer& layer) const {
  Signal signal(spec_.experts, 0.0);
  bool known = false;
  for (const std::uint32_t source : layer.previous) {
    layer.temporal[source].add_shares_to(signal);
    known = known || !layer.temporal[source].empty();
  }
  if (!known) {
    for (const std::uint32_t source : layer.previous) signal[source] = 1.0;
  }
  return signal;
}

ExpertPredictor::Signal ExpertPredictor::spatial_signal(std::size_t index) const {
  Signal signal(spec_.experts, 0.0);
  if (index == 0) return signal;
  const Layer& layer = layers_[index];
  const Route& sources = layers_[index - 1].current;
  bool recent = false;
  for (const std::uint32_t source : sources) {
    for (const std::uint32_t expert : layer.recent[source]) {
      signal[expert] += 1.0;
      recent = true;
    }
  }
  if (recent) return signal;
  for (const std::uint32_t source : sources) layer.spatial[source].add_shares_to(signal);
  return signal;
}

void ExpertPredictor::add_stretched(const Signal& signal, float weight, Signal& sum) const {
  double lowest = std::numeric_limits<double>::infinity(), highest = -lowest;
  for (const double value : signal) {
    if (!std::isfinite(value)) continue;
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  if (!(highest - lowest > kFlat)) return;
  for (std::size_t e = 0; e < signal.size(); ++e) {
    if (!std::isfinite(signal[e])) continue;
    sum[e] += double(weight) * ((signal[e] - lowest) / (highest - lowest));
  }
}

std::vector<std::uint32_t> ExpertPredictor::predict(std::uint32_t layer,
                                                    std::span<const float> router_scores) {
  Layer& at = layer_at(layer);
  if (!router_scores.empty() && router_scores.size() != spec_.experts) {
    base::raise(ErrorKind::kUsage,
                "expert predictor, layer {}: expected {} router scores, found {}", layer,
                spec_.experts, router_scores.size());
  }
  Signal frequency(spec_.experts, 0.0), sum(spec_.experts, 0.0);
  at.frequency.add_counts_to(frequency);
  add_stretched(frequency, spec_.frequency, sum);
  add_stretched(temporal_signal(at), spec_.temporal, sum);
  add_stretched(spatial_signal(layer - spec_.first_layer), spec_.spatial, sum);
  add_stretched(Signal(router_scores.begin(), router_scores.end()), spec_.future_router, sum);

  Route named;
  for (std::uint32_t e = 0; e < spec_.experts; ++e) {
    if (sum[e] > 0.0) named.push_back(e);
  }
  std::sort(named.begin(), named.end(), [&](std::uint32_t a, std::uint32_t b) {
    return sum[a] > sum[b] || (sum[a] == sum[b] && a < b);
  });
  if (named.size() > spec_.prefetch) named.resize(spec_.prefetch);
  at.predicted = named;
  at.asked = true;
  return named;
}

void ExpertPredictor::observe(std::uint32_t layer, std::span<const std::uint32_t> route) {
  Layer& at = layer_at(layer);
  check_route(layer, route);
  if (at.asked) {
    ++statistics_.evaluated;
    statistics_.wanted += route.size();
    statistics_.predicted += at.predicted.size();
    for (const std::uint32_t expert : at.predicted) {
      statistics_.hits += std::count(route.begin(), route.end(), expert) > 0 ? 1 : 0;
    }
  }
  learn(layer - spec_.first_layer, route);
}

void ExpertPredictor::learn(std::size_t index, std::span<const std::uint32_t> route) {
  Layer& layer = layers_[index];
  layer.current.assign(route.begin(), route.end());
  for (const std::uint32_t expert : route) layer.frequency.add(expert);
  for (const std::uint32_t source : layer.previous) {
    for (const std::uint32_t expert : route) layer.temporal[source].add(expert);
  }
  if (index == 0) return;
  for (const std::uint32_t source : layers_[index - 1].current) {
    for (const std::uint32_t expert : route) layer.spatial[source].add(expert);
    layer.recent[source].assign(route.begin(), route.end());
  }
}

void ExpertPredictor::replay(std::span<const std::uint32_t> routes) {
  if (open_) base::raise(ErrorKind::kUsage, "expert predictor: a token is open during a replay");
  const std::size_t k = spec_.chosen, per_token = spec_.layers * k;
  if (routes.size() % per_token != 0) {
    base::raise(ErrorKind::kUsage,
                "expert predictor: expected routes of {} experts in {} layers, found {} entries", k,
                spec_.layers, routes.size());
  }
  const std::size_t tokens = routes.size() / per_token;
  const auto route = [&](std::size_t layer, std::size_t token) {
    return routes.subspan((layer * tokens + token) * k, k);
  };
  for (std::size_t l = 0; l < spec_.layers; ++l) {
    for (std::size_t t = 0; t < tokens; ++t) {
      check_route(std::uint32_t(spec_.first_layer + l), route(l, t));
    }
  }
  for (std::size_t t = 0; t < tokens; ++t) {
    begin_token();
    for (std::size_t l = 0; l < spec_.layers; ++l) learn(l, route(l, t));
    finish_token();
  }
}

}  // namespace lemma::algorithm
