// SPDX-License-Identifier: Apache-2.0
// Phi-2: attention and an ungated GELU (tanh) block side by side on one LayerNorm, biases
// everywhere, also in the head; split-half RoPE over the first part of each head.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan phi2(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kLayer);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.rope = rope;
    plan.layers.push_back(
        {.sites = {{.norm = reader.norm(i, "attn_norm", NormKind::kLayer),
                    .mixer = std::move(attention)},
                   {.shares_norm = true, .mixer = reader.mlp(i, Activation::kGeluTanh)}},
         .side_by_side = true});
  }
  return plan;
}

}  // namespace lemma::model::arch
