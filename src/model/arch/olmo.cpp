// SPDX-License-Identifier: Apache-2.0
// OLMo 1: LayerNorms without any weight, projections that may be clamped (attention.clamp_kqv,
// read with the rest of attention), interleaved RoPE, gated SiLU. OLMoE: RMS norms with weights,
// and over the whole rows of q and k, split-half RoPE, experts whose weights are left as the
// softmax over all of them gives them.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan olmo(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kLayer);
  const Norm norm{.spec = {NormKind::kLayer, reader.epsilon(NormKind::kLayer)}};
  plan.final_norm = norm;
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kInterleaved);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.rope = rope;
    plan.layers.push_back({.sites = {
                               {.norm = norm, .mixer = std::move(attention)},
                               {.norm = norm, .mixer = reader.mlp(i, Activation::kSilu)},
                           }});
  }
  return plan;
}

Plan olmoe(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  const algorithm::RoutingSpec routing = reader.routing(algorithm::RouteScore::kSoftmax, false);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.qk_norm = reader.qk_norm(i, NormKind::kRms, QkNorm::Extent::kWholeRow);
    attention.rope = rope;
    plan.layers.push_back(reader.pre_norm(i, NormKind::kRms, std::move(attention),
                                          reader.ffn(i, {Activation::kSilu}, routing)));
  }
  return plan;
}

}  // namespace lemma::model::arch
