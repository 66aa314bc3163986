// SPDX-License-Identifier: Apache-2.0
// Llama 1 to 3.x and what shares its shape: Mistral and Mistral Nemo (its heads are narrower than
// width / heads: attention.key_length), TinyLlama, Vicuna, many others. Pre-norm RMS, GQA with
// interleaved RoPE, gated SiLU. Q and K rows of these files are stored for adjacent pairs; Llama
// 3.1's frequency scaling comes worked out as the tensor rope_freqs. Mixtral is the same with
// experts, whose chosen weights sum to 1.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan llama(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kInterleaved);
  const algorithm::RoutingSpec routing = reader.routing(algorithm::RouteScore::kSoftmax, true);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.rope = rope;
    attention.spec.window = reader.window();  // the first Mistral slides in every layer
    plan.layers.push_back(reader.pre_norm(i, NormKind::kRms, std::move(attention),
                                          reader.ffn(i, {Activation::kSilu}, routing)));
  }
  return plan;
}

}  // namespace lemma::model::arch
