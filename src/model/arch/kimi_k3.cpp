// SPDX-License-Identifier: Apache-2.0
// Kimi K3: Kimi Linear's layers (three of four KDA, the others latent attention without positions)
// with an attention residual in place of the plain one, a decay that is bounded below, an output
// gate on latent attention, SiTU for SiLU, and experts that work in a narrower, normed space.
//
// No GGUF file of this family is known; keys and tensors are those of its relatives, and what is
// new is read here: residual.block_size, the tensors attn_res, ffn_res and output_res (norm and
// projection), ffn_latent_down/up/norm, and activation.situ_*.
#include "base/raise.hpp"
#include "model/arch/kda.hpp"
#include "model/arch/parts.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RouteScore;

BlockMixWeights block_mix(const std::string& stem) {
  return {.norm = {stem + "_norm.weight"}, .projection = {stem + "_proj.weight"}};
}

AttentionResidual attention_residual(const Reader& reader) {
  AttentionResidual residual;
  residual.spec.block_size = positive(reader, "residual.block_size");
  residual.spec.width = reader.width();
  residual.spec.eps = reader.epsilon(NormKind::kRms);
  residual.leave = block_mix("output_res");
  return residual;
}

algorithm::ActivationSpec situ(const Reader& reader) {
  return {.kind = Activation::kSitu,
          .beta = reader.metadata().f32(reader.key("activation.situ_beta")),
          .linear_beta = reader.metadata().f32_or(reader.key("activation.situ_linear_beta"), 0.f)};
}

Mixer feed_forward(const Reader& reader, std::uint32_t layer,
                   const algorithm::ActivationSpec& activation,
                   const algorithm::RoutingSpec& routing) {
  Mixer mixer = reader.ffn(layer, activation, routing);
  auto* moe = std::get_if<Moe>(&mixer);
  if (!moe) return mixer;
  moe->latent_down = reader.linear(layer, "ffn_latent_down");
  moe->latent_up = reader.linear(layer, "ffn_latent_up");
  moe->latent_norm = reader.norm(layer, "ffn_latent_norm", NormKind::kRms);
  moe->expert.width = positive(reader, "expert_latent_length");
  return mixer;
}

Mla attention(const Reader& reader, std::uint32_t layer) {
  Mla mla = latent_attention(reader, layer);
  mla.spec.output_gate = true;
  mla.gate = reader.linear(layer, "attn_gate");
  return mla;
}

}  // namespace

Plan kimi_k3(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  plan.residual = attention_residual(reader);
  const algorithm::ActivationSpec activation = situ(reader);
  const algorithm::RoutingSpec routing = reader.routing(RouteScore::kSigmoid, true);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Mixer mixer = reader.kv_heads(i) == 0 ? Mixer(kimi_delta(reader, i, kda_spec(reader, i)))
                                          : Mixer(attention(reader, i));
    plan.layers.push_back({.sites = {
                               {.norm = reader.norm(i, "attn_norm", NormKind::kRms),
                                .mixer = std::move(mixer),
                                .block_mix = block_mix(Reader::block(i, "attn_res"))},
                               {.norm = reader.norm(i, "ffn_norm", NormKind::kRms),
                                .mixer = feed_forward(reader, i, activation, routing),
                                .block_mix = block_mix(Reader::block(i, "ffn_res"))},
                           }});
  }
  return plan;
}

}  // namespace lemma::model::arch
