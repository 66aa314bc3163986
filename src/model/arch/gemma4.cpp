// SPDX-License-Identifier: Apache-2.0
// Gemma 4. Like Gemma 3 it norms branches on their way in and out and slides in all but every n-th
// layer, but: sliding layers have heads of their own size and base, global layers turn by listed
// factors; scores are not scaled; values are normed without a weight, and are the raw keys where a
// layer has no value projection; the last layers read keys and values of the last layer of their
// kind that has its own; each layer adds a row of the token to the stream (per-layer inputs) and
// scales the whole stream. The MoE model has a dense block and experts side by side.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/raise.hpp"
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

namespace {

using algorithm::RopeSpec;

// What the layers of one kind, sliding or global, have in common.
struct Heads {
  std::uint32_t head_dim, value_dim, window;
  RopeSpec rope;
  std::optional<std::uint32_t> owner;  ///< the last layer of the kind with keys and values
};

Heads global_heads(const Reader& reader) {
  return {reader.head_dim(), reader.value_dim(), 0, reader.rope(RopeLayout::kSplitHalf), {}};
}

Heads sliding_heads(const Reader& reader, const Heads& global) {
  const weights::Metadata& keys = reader.metadata();
  Heads heads;
  heads.head_dim = keys.u32_or(reader.key("attention.key_length_swa"), global.head_dim);
  heads.value_dim = keys.u32_or(reader.key("attention.value_length_swa"), global.value_dim);
  heads.window = reader.window();
  heads.rope = unscaled(global.rope, keys.f32_or(reader.key("rope.freq_base_swa"), 10000.f));
  heads.rope.rotary_dim = keys.u32_or(reader.key("rope.dimension_count_swa"), heads.head_dim);
  return heads;
}

Gqa attention_of(const Reader& reader, std::uint32_t layer, const Heads& heads, bool owns) {
  Gqa attention = reader.gqa(layer);
  attention.spec.head_dim = heads.head_dim;
  attention.spec.value_dim = heads.value_dim;
  attention.spec.scale = reader.scale("attention.scale", 1.f);
  attention.spec.window = heads.window;
  attention.rope = heads.rope;
  attention.qk_norm = QkNorm{.query = reader.norm(layer, "attn_q_norm", NormKind::kRms)};
  if (!owns) {
    if (!heads.owner)
      base::raise(
          ErrorKind::kBadFile,
          "key '{}': layer {} should read keys and values, but no layer of its kind has any",
          reader.key("attention.shared_kv_layers"), layer);
    attention.source = heads.owner;
    attention.key = attention.value = {};
    // Some files keep the projections of these layers, which nothing reads.
    for (const char* unused : {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"})
      reader.leave_out(Reader::block(layer, unused));
    return attention;
  }
  attention.qk_norm->key = reader.norm(layer, "attn_k_norm", NormKind::kRms);
  attention.value_norm = Norm{.spec = {NormKind::kRms, reader.epsilon(NormKind::kRms)}};
  if (!reader.has_tensor(Reader::block(layer, "attn_v.weight"))) attention.value = {};
  return attention;
}

// A dense block and experts that read the stream under norms of their own. The router reads it
// under a third one, with a scale per channel and 1 / sqrt(D).
FfnSum dense_and_experts(const Reader& reader, std::uint32_t layer,
                         const algorithm::RoutingSpec& routing) {
  Moe moe = reader.moe(layer, {Activation::kGeluTanh}, routing);
  moe.router_norm = Norm{.spec = {NormKind::kRms, reader.epsilon(NormKind::kRms)}};
  moe.router_norm->weight.tensor = Reader::block(layer, "ffn_gate_inp.scale");
  moe.router_scale = 1.f / std::sqrt(static_cast<float>(reader.width()));
  if (const std::string scale = Reader::block(layer, "ffn_down_exps.scale");
      reader.has_tensor(scale)) {
    moe.routing.scale_per_expert = true;
    moe.expert_scale.tensor = scale;
  }
  FfnSum sum;
  sum.parts.push_back({.norm = reader.norm(layer, "ffn_norm", NormKind::kRms),
                       .mixer = reader.mlp(layer, Activation::kGeluTanh),
                       .branch_norm = reader.norm(layer, "post_ffw_norm_1", NormKind::kRms)});
  sum.parts.push_back({.norm = reader.norm(layer, "pre_ffw_norm_2", NormKind::kRms),
                       .mixer = std::move(moe),
                       .branch_norm = reader.norm(layer, "post_ffw_norm_2", NormKind::kRms)});
  return sum;
}

Site ffn_site(const Reader& reader, std::uint32_t layer, const algorithm::RoutingSpec& routing) {
  Site site;
  site.branch_norm = reader.norm(layer, "post_ffw_norm", NormKind::kRms);
  if (reader.routed(layer)) {
    site.mixer = dense_and_experts(reader, layer, routing);
  } else {
    site.norm = reader.norm(layer, "ffn_norm", NormKind::kRms);
    site.mixer = reader.mlp(layer, Activation::kGeluTanh);
  }
  return site;
}

Site per_layer_site(const Reader& reader, std::uint32_t layer, std::uint32_t width) {
  PerLayerInput input;
  input.activation.kind = Activation::kGeluTanh;
  input.width = width;
  input.index = layer;
  input.gate = reader.linear(layer, "inp_gate");
  input.output = reader.linear(layer, "proj");
  return {.mixer = std::move(input),
          .branch_norm = reader.norm(layer, "post_norm", NormKind::kRms)};
}

Embedding::PerLayer per_layer_rows(const Reader& reader, std::uint32_t width) {
  Embedding::PerLayer rows;
  rows.width = width;
  rows.table.tensor = "per_layer_token_embd.weight";
  rows.projection.weight.tensor = "per_layer_model_proj.weight";
  rows.norm = reader.named_norm("per_layer_proj_norm", NormKind::kRms);
  rows.table_scale = std::sqrt(static_cast<float>(width));
  rows.projection_scale = 1.f / std::sqrt(static_cast<float>(reader.width()));
  rows.sum_scale = 1.f / std::sqrt(2.f);
  return rows;
}

}  // namespace

Plan gemma4(const Reader& reader) {
  const weights::Metadata& keys = reader.metadata();
  Plan plan = reader.base_plan(NormKind::kRms);
  plan.embedding.scale = std::sqrt(static_cast<float>(reader.width()));
  plan.head.softcap = keys.f32_or(reader.key("final_logit_softcapping"), 0.f);
  const std::uint32_t row = keys.u32_or(reader.key("embedding_length_per_layer_input"), 0);
  if (row > 0) plan.embedding.per_layer = per_layer_rows(reader, row);
  const std::uint32_t sharing = keys.u32_or(reader.key("attention.shared_kv_layers"), 0);
  const std::uint32_t owners = reader.layers() - std::min(sharing, reader.layers());
  const algorithm::RoutingSpec routing = reader.routing(algorithm::RouteScore::kSoftmax, true);
  const std::vector<bool> slides = reader.sliding_layers(6);
  Heads global = global_heads(reader), sliding = sliding_heads(reader, global);

  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Heads& heads = slides[i] ? sliding : global;
    const bool owns = i < owners;
    Gqa attention = attention_of(reader, i, heads, owns);
    if (owns) heads.owner = i;
    Layer layer;
    layer.sites.push_back({.norm = reader.norm(i, "attn_norm", NormKind::kRms),
                           .mixer = std::move(attention),
                           .branch_norm = reader.norm(i, "post_attention_norm", NormKind::kRms)});
    layer.sites.push_back(ffn_site(reader, i, routing));
    if (row > 0) layer.sites.push_back(per_layer_site(reader, i, row));
    if (const std::string scale = Reader::block(i, "layer_output_scale.weight");
        reader.has_tensor(scale))
      layer.scale = reader.values(scale, 1)[0];
    plan.layers.push_back(std::move(layer));
  }
  return plan;
}

}  // namespace lemma::model::arch
