// SPDX-License-Identifier: Apache-2.0
// Qwen 2 / 2.5 and Qwen 3. Pre-norm RMS, GQA with split-half RoPE, gated SiLU. Qwen 2 has biases on
// q, k and v (the reader takes them where they are); Qwen 3 has none, and norms each head of q and
// k before it turns. Their MoE models have experts in every layer: Qwen 2's keep the softmax over
// all experts as it is and have a gated shared block, Qwen 3's weights sum to 1.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan qwen(const Reader& reader, bool normed_heads, bool normed_weights) {
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  const algorithm::RoutingSpec routing =
      reader.routing(algorithm::RouteScore::kSoftmax, normed_weights);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    if (normed_heads)
      attention.qk_norm = reader.qk_norm(i, NormKind::kRms, QkNorm::Extent::kPerHead);
    attention.rope = rope;
    plan.layers.push_back(reader.pre_norm(i, NormKind::kRms, std::move(attention),
                                          reader.ffn(i, {Activation::kSilu}, routing)));
  }
  return plan;
}

}  // namespace

Plan qwen2(const Reader& reader) {
  return qwen(reader, false, false);
}

Plan qwen3(const Reader& reader) {
  return qwen(reader, true, true);
}

}  // namespace lemma::model::arch
