// SPDX-License-Identifier: Apache-2.0
// StableLM 3B and StableLM 2. LayerNorms with bias, RoPE over the first part of each head
// (split-half), gated SiLU. The 12B has no second norm: its branches run side by side on the
// first, and each head of q and k has a LayerNorm with weights of its own.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan stablelm(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kLayer);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  // The converter writes true here where the original says nothing; ffn_norm is what tells.
  reader.metadata().boolean_or(reader.key("use_parallel_residual"), false);

  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    if (reader.has_tensor(Reader::block(i, "attn_q_norm.weight")))
      attention.qk_norm = reader.qk_norm(i, NormKind::kLayer, QkNorm::Extent::kPerHeadOwn);
    attention.rope = rope;

    Layer layer{
        .sites = {
            {.norm = reader.norm(i, "attn_norm", NormKind::kLayer), .mixer = std::move(attention)},
            {.mixer = reader.mlp(i, Activation::kSilu)},
        }};
    Site& ffn = layer.sites.back();
    if (reader.has_tensor(Reader::block(i, "ffn_norm.weight"))) {
      ffn.norm = reader.norm(i, "ffn_norm", NormKind::kLayer);
    } else {
      ffn.shares_norm = layer.side_by_side = true;
    }
    plan.layers.push_back(std::move(layer));
  }
  return plan;
}

}  // namespace lemma::model::arch
