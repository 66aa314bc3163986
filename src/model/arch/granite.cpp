// SPDX-License-Identifier: Apache-2.0
// Granite 3.x: Llama's layer with four multipliers: of the embeddings, of each branch before the
// sum, of the scores (attention.scale, read with the rest of attention), and of the logits, which
// are divided by theirs. The MoE models are the same with experts and, in some, a shared one; the
// softmax over the chosen logits of the published code is one over all, normalised.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan granite(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  plan.embedding.scale = reader.scale("embedding_scale", 1.f);
  plan.head.scale = 1.f / reader.scale("logit_scale", 1.f);
  const float branch_scale = reader.scale("residual_scale", 1.f);
  // These files use "finetuned" as the switch of RoPE: false is a model without positions.
  const bool turns = reader.metadata().boolean_or(reader.key("rope.scaling.finetuned"), true);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kInterleaved);
  const algorithm::RoutingSpec routing = reader.routing(algorithm::RouteScore::kSoftmax, true);

  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    if (turns) attention.rope = rope;
    plan.layers.push_back({.sites = {
                               {.norm = reader.norm(i, "attn_norm", NormKind::kRms),
                                .mixer = std::move(attention),
                                .scale = branch_scale},
                               {.norm = reader.norm(i, "ffn_norm", NormKind::kRms),
                                .mixer = reader.ffn(i, {Activation::kSilu}, routing),
                                .scale = branch_scale},
                           }});
  }
  return plan;
}

}  // namespace lemma::model::arch
