// SPDX-License-Identifier: Apache-2.0
// Falcon: attention and an ungated GELU block side by side, no biases but in the LayerNorms,
// split-half RoPE, one fused q/k/v matrix. The 7B has one KV head and one norm for both branches;
// the 40B and 180B have several and a norm each: attn_norm_2 is attention's, attn_norm the block's.
#include <utility>

#include "model/arch/parts.hpp"

namespace lemma::model::arch {

using algorithm::NormKind;
using algorithm::RopeLayout;

Plan falcon(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kLayer);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  const algorithm::Activation gelu = gelu_kind(reader);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.rope = rope;
    Layer layer{.sites = {{.norm = reader.norm(i, "attn_norm", NormKind::kLayer),
                           .mixer = std::move(attention)},
                          {.mixer = reader.mlp(i, gelu)}},
                .side_by_side = true};
    Site &attends = layer.sites[0], &feeds = layer.sites[1];
    if (reader.has_tensor(Reader::block(i, "attn_norm_2.weight"))) {
      feeds.norm = std::exchange(attends.norm, reader.norm(i, "attn_norm_2", NormKind::kLayer));
    } else {
      feeds.shares_norm = true;
    }
    plan.layers.push_back(std::move(layer));
  }
  return plan;
}

}  // namespace lemma::model::arch
