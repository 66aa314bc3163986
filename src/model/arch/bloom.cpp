// SPDX-License-Identifier: Apache-2.0
// BLOOM: a LayerNorm of the embeddings, ALiBi instead of positions, one fused q/k/v matrix, an
// ungated GELU (tanh) block, biases everywhere.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;

// Files do not say it: it is the slope rule of the ALiBi paper, and the only one BLOOM has.
constexpr float kMaxAlibiBias = 8.f;

Plan bloom(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kLayer);
  plan.embedding.norm = reader.named_norm("token_embd_norm", NormKind::kLayer);
  const float max_bias =
      reader.metadata().f32_or(reader.key("attention.max_alibi_bias"), kMaxAlibiBias);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.spec.alibi_max_bias = max_bias;
    plan.layers.push_back(reader.pre_norm(i, NormKind::kLayer, std::move(attention),
                                          reader.mlp(i, Activation::kGeluTanh)));
  }
  return plan;
}

}  // namespace lemma::model::arch
