// SPDX-License-Identifier: Apache-2.0
// GLM-4 and GLM-4.5. RMS norms, biases on q, k and v, RoPE over the first part of each head, gated
// SiLU. GLM-4 rotates neighbours and norms each branch on its way in and out. GLM-4.5 rotates
// halves, has leading dense layers, then experts scored by a sigmoid with a bias for the choice,
// and a shared one; its post_attention_norm is the norm before the feed-forward block, and its
// larger model norms the heads of q and k. A block behind its last layer drafts.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan glm4(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kInterleaved);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.rope = rope;
    plan.layers.push_back(
        {.sites = {
             {.norm = reader.norm(i, "attn_norm", NormKind::kRms),
              .mixer = std::move(attention),
              .branch_norm = reader.norm(i, "post_attention_norm", NormKind::kRms)},
             {.norm = reader.norm(i, "ffn_norm", NormKind::kRms),
              .mixer = reader.mlp(i, Activation::kSilu),
              .branch_norm = reader.norm(i, "post_ffw_norm", NormKind::kRms)},
         }});
  }
  return plan;
}

Plan glm4moe(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  const algorithm::RoutingSpec routing = reader.routing(algorithm::RouteScore::kSigmoid, false);
  const auto layer = [&](std::uint32_t i) {
    Gqa attention = reader.gqa(i);
    if (reader.has_tensor(Reader::block(i, "attn_q_norm.weight")))
      attention.qk_norm = reader.qk_norm(i, NormKind::kRms, QkNorm::Extent::kPerHead);
    attention.rope = rope;
    return reader.pre_norm(i, NormKind::kRms, std::move(attention),
                           reader.ffn(i, {Activation::kSilu}, routing), "post_attention_norm");
  };
  for (std::uint32_t i = 0; i < reader.layers(); ++i) plan.layers.push_back(layer(i));
  reader.add_drafts(plan, layer);
  return plan;
}

}  // namespace lemma::model::arch
