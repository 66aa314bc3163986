// SPDX-License-Identifier: Apache-2.0
// MPT: ALiBi instead of positions, LayerNorms without bias, one fused q/k/v matrix whose results
// may be clamped (attention.clamp_kqv, read with the rest of attention), an ungated GELU block, a
// head tied to the embedding.
#include "model/arch/parts.hpp"

namespace lemma::model::arch {

using algorithm::NormKind;

Plan mpt(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kLayer);
  const float max_bias = reader.metadata().f32_or(reader.key("attention.max_alibi_bias"), 0.f);
  if (max_bias == 0.f) reader.add_learned_positions(plan);
  const algorithm::Activation gelu = gelu_kind(reader);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.spec.alibi_max_bias = max_bias;
    plan.layers.push_back(
        reader.pre_norm(i, NormKind::kLayer, std::move(attention), reader.mlp(i, gelu)));
  }
  return plan;
}

}  // namespace lemma::model::arch
