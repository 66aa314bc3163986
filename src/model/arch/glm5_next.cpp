// SPDX-License-Identifier: Apache-2.0
// GLM 5.3 Flash (glm5-next). The residual is several streams (hyper-connections), whose mean leaves
// the model. Three of four layers are KDA with a bounded decay; the others attend latently, without
// positions, to the tokens of the pools that an indexer chooses, or of the list that a layer before
// them chose. Everything gated is clamped; experts stand behind a few dense layers.
//
// No GGUF file of this family is known; keys and tensors are those of its relatives, and what is
// new is read here: attention.indexer.pool_size and pool_tail, indexer.pool_gate and
// indexer.pool_positions.
#include "base/raise.hpp"
#include "model/arch/kda.hpp"
#include "model/arch/parts.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RouteScore;

constexpr float kIndexKeyEps = 1e-6f;

StreamWeights streams(const std::string& stem) {
  return {.fn = {stem + "_fn.weight"},
          .base = {stem + "_base.weight"},
          .scale = {stem + "_scale.weight"}};
}

HyperConnections hyper_connections(const Reader& reader) {
  HyperConnections hyper;
  hyper.spec.streams = positive(reader, "hyper_connection.count");
  hyper.spec.width = reader.width();
  hyper.spec.iterations = positive(reader, "hyper_connection.sinkhorn_iterations");
  hyper.spec.eps = reader.metadata().f32(reader.key("hyper_connection.epsilon"));
  hyper.spec.norm_eps = reader.epsilon(NormKind::kRms);
  hyper.spec.validate();
  return hyper;
}

TokenIndexer indexer(const Reader& reader, std::uint32_t layer) {
  TokenIndexer indexer;
  indexer.spec.heads = positive(reader, "attention.indexer.head_count");
  indexer.spec.dim = positive(reader, "attention.indexer.key_length");
  indexer.spec.top_k = positive(reader, "attention.indexer.top_k");
  indexer.query = reader.linear(layer, "indexer.attn_q_b");
  indexer.key = reader.linear(layer, "indexer.attn_k");
  indexer.weights = reader.linear(layer, "indexer.proj");
  const std::string stem = Reader::block(layer, "indexer.k_norm");
  indexer.key_norm.spec = {NormKind::kLayer, kIndexKeyEps};
  indexer.key_norm.weight.tensor = stem + ".weight";
  indexer.key_norm.bias.tensor = stem + ".bias";
  indexer.kpool = positive(reader, "attention.indexer.pool_size");
  indexer.always_select_tail = reader.metadata().boolean(reader.key("attention.indexer.pool_tail"));
  indexer.pool_gate = reader.linear(layer, "indexer.pool_gate");
  indexer.pool_positions.tensor = Reader::block(layer, "indexer.pool_positions.weight");
  return indexer;
}

Mla attention(const Reader& reader, std::uint32_t layer, std::uint32_t chooser) {
  Mla mla = latent_attention(reader, layer);
  // The latents' norms have the layer's eps here.
  const float eps = reader.epsilon(NormKind::kRms);
  mla.spec.latent_eps = mla.latent_norm.spec.eps = mla.query_norm.spec.eps = eps;
  if (chooser == layer) mla.indexer = indexer(reader, layer);
  mla.selection_source = chooser;
  return mla;
}

Mixer feed_forward(const Reader& reader, std::uint32_t layer,
                   const algorithm::RoutingSpec& routing) {
  const algorithm::ActivationSpec clamped{.kind = Activation::kSilu,
                                          .limit = reader.scale("swiglu_clamp_exp", 0.f)};
  return reader.ffn(layer, clamped, routing);
}

}  // namespace

Plan glm5_next(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  plan.residual = hyper_connections(reader);
  const algorithm::RoutingSpec routing = reader.routing(RouteScore::kSigmoid, true);
  std::uint32_t chooser = reader.layers();
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Mixer mixer = Mla();
    if (reader.kv_heads(i) == 0) {
      mixer = kimi_delta(reader, i, kda_spec(reader, i));
    } else {
      if (reader.has_tensor(Reader::block(i, "indexer.attn_k.weight"))) chooser = i;
      if (chooser == reader.layers())
        base::raise(ErrorKind::kBadFile,
                    "layer {} attends and has no indexer, and there is no layer before it to take "
                    "tokens from",
                    i);
      mixer = attention(reader, i, chooser);
    }
    plan.layers.push_back({.sites = {
                               {.norm = reader.norm(i, "attn_norm", NormKind::kRms),
                                .mixer = std::move(mixer),
                                .streams = streams(Reader::block(i, "hc_attn"))},
                               {.norm = reader.norm(i, "ffn_norm", NormKind::kRms),
                                .mixer = feed_forward(reader, i, routing),
                                .streams = streams(Reader::block(i, "hc_ffn"))},
                           }});
  }
  return plan;
}

}  // namespace lemma::model::arch
