// SPDX-License-Identifier: Apache-2.0
// OLMo 2 and 3. The stream enters each branch as it is; the branch is normed before the sum. RMS
// norms run over the whole row of q and of k, all heads together. Split-half RoPE, gated SiLU.
// OLMo 3 slides in all but every fourth layer, and scales RoPE (YaRN) in the global layers only.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;
using algorithm::RopeSpec;

Plan olmo2(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kRms);
  const std::uint32_t window = reader.window();
  std::vector<bool> sliding = reader.sliding_layers(4);
  if (window == 0) sliding.assign(sliding.size(), false);
  const RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  const RopeSpec local = unscaled(rope, rope.theta);

  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.qk_norm = reader.qk_norm(i, NormKind::kRms, QkNorm::Extent::kWholeRow);
    attention.spec.window = sliding[i] ? window : 0;
    attention.rope = sliding[i] ? local : rope;
    plan.layers.push_back(
        {.sites = {
             {.mixer = std::move(attention),
              .branch_norm = reader.norm(i, "post_attention_norm", NormKind::kRms)},
             {.mixer = reader.mlp(i, Activation::kSilu),
              .branch_norm = reader.norm(i, "post_ffw_norm", NormKind::kRms)},
         }});
  }
  return plan;
}

}  // namespace lemma::model::arch
