// SPDX-License-Identifier: Apache-2.0
// What stands inside: norms, attention weights and chosen experts, layer by layer.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "eval/explain.hpp"
#include "eval/explain_attention.hpp"
#include "model/plan.hpp"
#include "runtime/evaluation.hpp"
#include "runtime/steering.hpp"

namespace lemma::eval {
namespace {

constexpr std::size_t kMostRead = 8;

/// The sites that the views are made of.
struct Sites {
  std::vector<std::int32_t> branches;
  std::map<std::uint32_t, std::int32_t> streams;  ///< by layer: the last one of its sites
  std::vector<AttentionSite> attention;
  std::vector<backend::Route> routes;
};

Sites find_sites(const runtime::LoadedModel& model) {
  const backend::Program& program = model.program();
  Sites sites{.branches = runtime::branches(program), .attention = attention_sites(model)};
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    const std::string& name = program.tensors[i].name;
    const auto place = runtime::layer_site(name);
    if (place && (name.ends_with(".stream") || name.ends_with(".sum_norm")))
      sites.streams[place->layer] = static_cast<std::int32_t>(i);
  }
  for (const backend::Operation& operation : program.operations)
    if (const auto* route = std::get_if<backend::Route>(&operation)) sites.routes.push_back(*route);
  return sites;
}

void want_all(const Sites& sites, SiteRows& rows) {
  const auto want = [&](std::int32_t id) { rows.want({id, 1}); };
  for (const std::int32_t branch : sites.branches) want(branch);
  for (const auto& [layer, stream] : sites.streams) want(stream);
  for (const AttentionSite& site : sites.attention)
    for (const backend::Tensor tensor : {site.query, site.key, site.rope, site.selection})
      rows.want(tensor);
  for (const backend::Route& route : sites.routes)
    for (const backend::Tensor tensor : {route.ids, route.weights}) rows.want(tensor);
}

RowNorms norms_of(const backend::Program& program, const SiteRows& rows, std::int32_t tensor,
                  std::size_t prompt) {
  RowNorms norms{.site = program.tensors[std::size_t(tensor)].name};
  for (std::size_t t = 0; t < prompt; ++t) {
    double squares = 0;
    for (const float x : rows.row(tensor, t)) squares += double(x) * double(x);
    norms.last = std::sqrt(squares);
    norms.mean += norms.last / double(prompt);
  }
  return norms;
}

ExpertView experts_of(const backend::Program& program, const SiteRows& rows,
                      const backend::Route& route, std::size_t prompt) {
  ExpertView view{.site = program.tensors[std::size_t(route.ids.id)].name,
                  .experts = route.spec.experts,
                  .chosen = route.spec.chosen};
  view.use.resize(route.spec.experts);
  for (const float id : rows.rows(route.ids.id)) ++view.use.at(std::size_t(id));
  for (const float id : rows.row(route.ids.id, prompt - 1))
    view.ids.push_back(static_cast<std::uint32_t>(id));
  const auto weights = rows.row(route.weights.id, prompt - 1);
  view.weights.assign(weights.begin(), weights.end());
  return view;
}

AttentionView::Read heaviest(std::span<const float> weights) {
  const auto best = std::max_element(weights.begin(), weights.end());
  return {static_cast<std::uint32_t>(best - weights.begin()), *best};
}

/// The heaviest positions of one averaged row.
std::vector<AttentionView::Read> most_read(std::span<const float> weights) {
  std::vector<std::uint32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0u);
  const std::size_t n = std::min(kMostRead, order.size());
  std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(n), order.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
                    });
  std::vector<AttentionView::Read> most;
  for (std::size_t i = 0; i < n && weights[order[i]] > 0.f; ++i)
    most.push_back({order[i], weights[order[i]]});
  return most;
}

AttentionView attention_of(const runtime::LoadedModel& model, const state::Layout& layout,
                           const SiteRows& rows, const AttentionSite& site, std::size_t prompt) {
  AttentionView view{.site = site.name, .heads = site.heads, .hidden = site.hidden};
  if (site.selection)
    view.chosen = static_cast<std::uint32_t>(rows.row(site.selection.id, prompt - 1)[0]);
  if (!site.hidden.empty()) return view;
  AttentionWeights weights(model, layout, site, rows);
  const std::size_t tokens = weights.tokens();
  view.mean.resize(tokens * tokens);
  for (std::uint32_t head = 0; head < site.heads; ++head)
    for (std::uint32_t t = 0; t < tokens; ++t) {
      const std::vector<float> row = weights.of(head, t);
      for (std::size_t j = 0; j < tokens; ++j)
        view.mean[t * tokens + j] += row[j] / float(site.heads);
      if (t + 1 == prompt) view.head_most.push_back(heaviest(row));
    }
  view.most = most_read(std::span(view.mean).subspan((prompt - 1) * tokens, tokens));
  return view;
}

std::vector<LayerView> blank_layers(const model::Plan& plan) {
  std::vector<LayerView> layers(plan.layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].layer = static_cast<std::uint32_t>(i);
    for (const model::Site& site : plan.layers[i].sites)
      layers[i].mixers +=
          (layers[i].mixers.empty() ? "" : ", ") + std::string(model::mixer_name(site.mixer));
  }
  return layers;
}

}  // namespace

std::vector<LayerView> look_inside(ModelRun& run, std::span<const std::int32_t> tokens,
                                   std::size_t prompt, const ProgressCallback& progress) {
  const runtime::LoadedModel& model = run.model();
  const backend::Program& program = model.program();
  const Sites sites = find_sites(model);
  SiteRows rows(program);
  want_all(sites, rows);
  backend::Observer* const observer = &rows;
  run.prepare({&observer, 1}, static_cast<std::uint32_t>(tokens.size()), 1);
  state::Sequence sequence(run.space().pool());
  runtime::Chunking chunking;
  if (prompt < tokens.size()) chunking.generated_from = static_cast<std::uint32_t>(prompt);
  runtime::evaluate(model, run.space(), sequence, tokens, chunking, {});

  std::vector<LayerView> layers = blank_layers(model.plan());
  const auto layer_of = [&](std::int32_t tensor) -> LayerView& {
    return layers[runtime::layer_site(program.tensors[std::size_t(tensor)].name)->layer];
  };
  for (const std::int32_t branch : sites.branches)
    layer_of(branch).branches.push_back(norms_of(program, rows, branch, prompt));
  for (const auto& [layer, stream] : sites.streams)
    layers[layer].stream = norms_of(program, rows, stream, prompt);
  for (const backend::Route& route : sites.routes)
    layer_of(route.ids.id).experts.push_back(experts_of(program, rows, route, prompt));
  for (std::size_t i = 0; i < sites.attention.size(); ++i) {
    const AttentionSite& site = sites.attention[i];
    layers[site.layer].attention.push_back(
        attention_of(model, run.space().layout(), rows, site, prompt));
    if (progress) progress("looking inside", double(i + 1) / double(sites.attention.size()));
  }
  return layers;
}

}  // namespace lemma::eval
