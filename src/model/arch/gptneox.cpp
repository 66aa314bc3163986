// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX and Pythia: LayerNorms with bias, one fused q/k/v matrix, split-half RoPE over the first
// part of each head, an ungated GELU block. Both branches have a norm of their own, also where they
// run side by side.
#include "model/arch/parts.hpp"

namespace lemma::model::arch {

using algorithm::NormKind;
using algorithm::RopeLayout;

Plan gptneox(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kLayer);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  const bool side_by_side = reader.metadata().boolean_or(reader.key("use_parallel_residual"), true);
  const algorithm::Activation gelu = gelu_kind(reader);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.rope = rope;
    plan.layers.push_back({.sites = {{.norm = reader.norm(i, "attn_norm", NormKind::kLayer),
                                      .mixer = std::move(attention)},
                                     {.norm = reader.norm(i, "ffn_norm", NormKind::kLayer),
                                      .mixer = reader.mlp(i, gelu)}},
                           .side_by_side = side_by_side});
  }
  return plan;
}

}  // namespace lemma::model::arch
