// SPDX-License-Identifier: Apache-2.0
// Ling 2 and Ring 2 (BailingMoE 2): RMS norms, one fused q/k/v matrix, normed heads of q and k,
// split-half RoPE over the first part of each head, gated SiLU. Leading dense layers, then experts
// in groups, scored by a sigmoid with a bias for the choice, and a shared one.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan bailingmoe2(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  const algorithm::RoutingSpec routing = reader.routing(algorithm::RouteScore::kSigmoid, false);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.qk_norm = reader.qk_norm(i, NormKind::kRms, QkNorm::Extent::kPerHead);
    attention.rope = rope;
    plan.layers.push_back(reader.pre_norm(i, NormKind::kRms, std::move(attention),
                                          reader.ffn(i, {Activation::kSilu}, routing)));
  }
  return plan;
}

}  // namespace lemma::model::arch
