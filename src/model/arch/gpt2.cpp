// SPDX-License-Identifier: Apache-2.0
// GPT-2: learned positions added to the embeddings, LayerNorms with bias, one fused q/k/v matrix
// with bias, an ungated GELU (tanh) block with biases. Nothing rotates. StarCoder (GPTBigCode) is
// the same layer with one KV head.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;

Plan gpt2(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kLayer);
  reader.add_learned_positions(plan);
  for (std::uint32_t i = 0; i < reader.layers(); ++i)
    plan.layers.push_back(
        {.sites = {
             {.norm = reader.norm(i, "attn_norm", NormKind::kLayer), .mixer = reader.gqa(i)},
             {.norm = reader.norm(i, "ffn_norm", NormKind::kLayer),
              .mixer = reader.mlp(i, Activation::kGeluTanh)},
         }});
  return plan;
}

Plan starcoder(const Reader& reader) {
  return gpt2(reader);
}

}  // namespace lemma::model::arch
