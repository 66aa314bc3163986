// SPDX-License-Identifier: Apache-2.0
#include "eval/route_recorder.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.hpp"
#include "base/half.hpp"
#include "base/raise.hpp"
#include "runtime/evaluation.hpp"
#include "runtime/recorded_weights.hpp"

namespace lemma::eval {
namespace {

/// The number in "layers.3.ffn.experts_chosen".
std::uint32_t layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  std::uint32_t layer = 0;
  const char* const end = name.data() + name.size();
  if (!name.starts_with(kPrefix) ||
      std::from_chars(name.data() + kPrefix.size(), end, layer).ec != std::errc())
    base::raise(ErrorKind::kUnsupported, "routes: '{}' belongs to no layer", name);
  return layer;
}

}  // namespace

RouteRecorder::RouteRecorder(const runtime::LoadedModel& model) {
  const runtime::RecordedWeights recorded = runtime::record_weights(model);
  const backend::Program& program = recorded.program;
  std::vector<std::pair<const backend::Project*, const backend::Project::Output*>> writers(
      program.tensors.size());
  for (const backend::Program::Site& site : program.tensors) names_.push_back(site.name);
  for (const backend::Operation& operation : program.operations) {
    if (const auto* project = std::get_if<backend::Project>(&operation))
      for (const auto& output : project->outputs)
        writers[std::size_t(output.out.id)] = {project, &output};
    const auto* const route = std::get_if<backend::Route>(&operation);
    if (!route) continue;
    const std::uint32_t layer = layer_of(names_[std::size_t(route->ids.id)]);
    if (layers_.empty()) {
      trace_.first_layer = layer;
      trace_.experts = route->logits.width;
      trace_.chosen = route->ids.width;
    }
    if (layer != trace_.first_layer + layers_.size() || route->logits.width != trace_.experts ||
        route->ids.width != trace_.chosen)
      base::raise(ErrorKind::kUnsupported,
                  "routes: layer {} chooses {} of {} experts; expected layer {} with {} of {}",
                  layer, route->ids.width, route->logits.width, trace_.first_layer + layers_.size(),
                  trace_.chosen, trace_.experts);
    Layer noted{.ids = route->ids.id};
    if (const auto [project, output] = writers[std::size_t(route->logits.id)]; project) {
      noted.in = project->in.id;
      noted.matrix = weights::to_f32(recorded.matrices[std::size_t(output->weight)]);
      if (output->bias != backend::kNoWeight)
        noted.bias = weights::to_f32(recorded.matrices[std::size_t(output->bias)]);
    }
    layers_.push_back(std::move(noted));
  }
  if (layers_.empty()) base::raise(ErrorKind::kUnsupported, "routes: this model has no experts");
  trace_.layers = static_cast<std::uint32_t>(layers_.size());
}

bool RouteRecorder::wants(const backend::Program::Site& site) {
  return std::any_of(layers_.begin(), layers_.end(), [&](const Layer& layer) {
    return site.name == names_[std::size_t(layer.ids)] ||
           (layer.in >= 0 && site.name == names_[std::size_t(layer.in)]);
  });
}

void RouteRecorder::observe(std::int32_t tensor, const backend::Program::Site& site,
                            const backend::Step&, std::span<float> rows) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].ids == tensor)
      for (const float id : rows) layers_[i].routes.push_back(static_cast<std::uint16_t>(id));
    if (layers_[i].in == tensor && i + 1 < layers_.size()) score(layers_[i + 1], rows, site.width);
  }
}

void RouteRecorder::score(Layer& layer, std::span<const float> rows, std::size_t width) const {
  constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
  const bool known = layer.matrix.size() == trace_.experts * width;
  for (std::size_t at = 0; at < rows.size(); at += width) {
    for (std::size_t e = 0; e < trace_.experts; ++e) {
      double sum = layer.bias.empty() ? 0.0 : double(layer.bias[e]);
      for (std::size_t i = 0; known && i < width; ++i)
        sum += double(rows[at + i]) * double(layer.matrix[e * width + i]);
      layer.scores.push_back(base::f32_to_f16(known ? float(sum) : kUnknown));
    }
  }
}

RouteTrace RouteRecorder::take() {
  const std::size_t k = trace_.chosen, experts = trace_.experts;
  const std::size_t tokens = layers_[0].routes.size() / k;
  RouteTrace trace = trace_;
  if (tokens > 0) trace.starts = {0};
  const std::uint16_t unknown = base::f32_to_f16(std::numeric_limits<float>::quiet_NaN());
  for (std::size_t t = 0; t < tokens; ++t) {
    for (const Layer& layer : layers_) {
      const auto at = layer.routes.begin() + std::ptrdiff_t(t * k);
      trace.routes.insert(trace.routes.end(), at, at + std::ptrdiff_t(k));
      if (layer.scores.size() < (t + 1) * experts) {
        trace.scores.insert(trace.scores.end(), experts, unknown);
        continue;
      }
      const auto scores = layer.scores.begin() + std::ptrdiff_t(t * experts);
      trace.scores.insert(trace.scores.end(), scores, scores + std::ptrdiff_t(experts));
    }
  }
  return trace;
}

RouteTrace record_routes(ModelRun& run, std::span<const std::int32_t> tokens) {
  RouteRecorder recorder(run.model());
  backend::Observer* const observer = &recorder;
  run.prepare({&observer, 1}, 0, 1);
  state::Sequence sequence(run.space().pool());
  runtime::evaluate(run.model(), run.space(), sequence, tokens, {}, {});
  return recorder.take();
}

}  // namespace lemma::eval
