// SPDX-License-Identifier: Apache-2.0
// Shapes, read off the operations that are run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <initializer_list>
#include <utility>

#include "backend/tensor_arena.hpp"
#include "eval/explain.hpp"
#include "runtime/steering.hpp"

namespace lemma::eval {
namespace {

std::string shape(std::initializer_list<std::size_t> sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

/// The shapes of one operation over `s` tokens; empty for one that keeps its rows' shape.
class Shapes {
 public:
  explicit Shapes(std::size_t s) : s_(s) {}

  std::string operator()(const backend::Embed& op) const {
    return fmt::format("{} ids -> {}", shape({s_}), shape({s_, op.out.width}));
  }
  std::string operator()(const backend::Attend& op) const {
    const algorithm::GqaSpec& spec = op.spec;
    std::string text = fmt::format(
        "queries {}, keys {}, values {} -> {}", shape({s_, spec.query_heads, spec.head_dim}),
        shape({s_, spec.kv_heads, spec.head_dim}), shape({s_, spec.kv_heads, spec.value_dim}),
        shape({s_, spec.query_heads, spec.value_dim}));
    if (spec.window > 0) text += fmt::format(", the last {} tokens", spec.window);
    return op.selection ? text + ", of selected tokens" : text;
  }
  std::string operator()(const backend::AttendLatent& op) const {
    const algorithm::MlaSpec& spec = op.spec;
    return fmt::format("queries {}, latents {}, shared keys {} -> {}{}",
                       shape({s_, spec.heads, spec.query_dim()}), shape({s_, spec.latent_rank}),
                       shape({s_, spec.rope_dim}), shape({s_, spec.heads, spec.value_dim}),
                       op.selection ? ", of selected tokens" : "");
  }
  std::string operator()(const backend::AttendCompressed& op) const {
    const algorithm::CompressedSparseSpec& spec = op.spec;
    return fmt::format("queries {}, rows {} and compressed entries -> {}",
                       shape({s_, spec.heads, spec.head_dim}), shape({s_, spec.head_dim}),
                       shape({s_, spec.heads, spec.head_dim}));
  }
  std::string operator()(const backend::Select& op) const {
    return fmt::format("index queries {} -> lists {}", shape({s_, op.query.width}),
                       shape({s_, op.out.width}));
  }
  std::string operator()(const backend::Recur& op) const {
    std::size_t width = 0;
    for (const backend::Tensor channels : op.channels) width += channels.width;
    return fmt::format("{} through a recurrent state -> {}", shape({s_, width}),
                       shape({s_, op.out.width}));
  }
  std::string operator()(const backend::Mlp& op) const {
    return fmt::format("{} -> {} -> {}", shape({s_, op.in.width}), shape({s_, op.spec.hidden}),
                       shape({s_, op.out.width}));
  }
  std::string operator()(const backend::Route& op) const {
    return fmt::format("{} -> {} experts", shape({s_, op.logits.width}), shape({s_, op.ids.width}));
  }
  std::string operator()(const backend::Experts& op) const {
    return fmt::format("{} -> {} -> {}, {} of {} experts a token", shape({s_, op.in.width}),
                       shape({s_, op.ids.width, op.spec.hidden}), shape({s_, op.out.width}),
                       op.ids.width, op.experts);
  }
  std::string operator()(const backend::StreamsEnter& op) const {
    return fmt::format("{} -> {} streams", shape({s_, op.in.width}),
                       shape({s_, op.spec.streams, op.in.width}));
  }
  std::string operator()(const backend::StreamsLeave& op) const {
    return fmt::format("{} streams -> {}", shape({s_, op.spec.streams, op.out.width}),
                       shape({s_, op.out.width}));
  }
  template <typename Other>
  std::string operator()(const Other&) const {
    return {};
  }

 private:
  std::size_t s_;
};

/// Where an operation's site stands, and its name there.
Stage place_of(const backend::Program& program, const backend::Operation& operation) {
  Stage stage{.operation = std::string(backend::operation_name(operation))};
  const auto outputs = backend::outputs(operation);
  if (outputs.empty()) return stage;
  stage.site = program.tensors[std::size_t(outputs[0].id)].name;
  if (const auto place = runtime::layer_site(stage.site)) {
    stage.in_layers = true;
    stage.first_layer = stage.last_layer = place->layer;
    stage.site.erase(0, stage.site.find('.', stage.site.find('.') + 1) + 1);
  }
  return stage;
}

bool same(const Stage& a, const Stage& b) {
  return a.operation == b.operation && a.site == b.site && a.shape == b.shape;
}

/// Adds a layer's stages; a layer that is like the one before it makes that one's run longer.
void add_layer(std::vector<Stage>& all, std::vector<Stage>& before, std::vector<Stage> layer) {
  const bool like = std::equal(before.begin(), before.end(), layer.begin(), layer.end(), same);
  if (like && !layer.empty()) {
    for (std::size_t i = all.size() - layer.size(); i < all.size(); ++i)
      all[i].last_layer = layer.front().last_layer;
    return;
  }
  all.insert(all.end(), layer.begin(), layer.end());
  before = std::move(layer);
}

}  // namespace

std::vector<Stage> stages_of(const backend::Program& program, std::size_t tokens) {
  std::vector<Stage> all, before, layer;
  const Shapes shapes(tokens);
  for (const backend::Operation& operation : program.operations) {
    Stage stage = place_of(program, operation);
    stage.shape = std::visit(shapes, operation);
    if (const auto* head = std::get_if<backend::Head>(&operation)) {
      stage.site = "logits";
      stage.shape = fmt::format("{} -> {}, of the last token alone",
                                shape({tokens, head->in.width}), shape({1, program.vocabulary}));
    }
    if (stage.shape.empty()) continue;
    const bool continues =
        stage.in_layers && !layer.empty() && layer[0].first_layer == stage.first_layer;
    if (!continues && !layer.empty()) add_layer(all, before, std::exchange(layer, {}));
    if (stage.in_layers)
      layer.push_back(std::move(stage));
    else
      all.push_back(std::move(stage));
  }
  if (!layer.empty()) add_layer(all, before, std::move(layer));
  return all;
}

}  // namespace lemma::eval
