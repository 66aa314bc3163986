// SPDX-License-Identifier: Apache-2.0
// StarCoder 2: LayerNorms with bias, GQA with biases and split-half RoPE, an ungated GELU (tanh)
// block with biases. A window in the file holds in every layer.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan starcoder2(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kLayer);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.rope = rope;
    attention.spec.window = reader.window();
    plan.layers.push_back(reader.pre_norm(i, NormKind::kLayer, std::move(attention),
                                          reader.mlp(i, Activation::kGeluTanh)));
  }
  return plan;
}

}  // namespace lemma::model::arch
