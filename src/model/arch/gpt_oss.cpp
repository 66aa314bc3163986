// SPDX-License-Identifier: Apache-2.0
// gpt-oss: RMS norms (post_attention_norm is the one before the feed-forward block), biases
// everywhere, split-half RoPE with YaRN, a sink per head, a window in every other layer from the
// first on. Every block has experts: the router's bias counts, the softmax goes over the chosen
// logits, and the activation is the clamped SwiGLU with alpha 1.702 and u + 1.
//
// The published model has YaRN's ramp without rounding its ends to whole dims; GGUF files cannot
// say so, and the engine they are written for rounds them, so they are rounded then.
#include <vector>

#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan gpt_oss(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  const std::vector<bool> sliding = reader.sliding_layers(2);
  const algorithm::RoutingSpec routing =
      reader.routing(algorithm::RouteScore::kSoftmaxOverChosen, false);
  constexpr algorithm::ActivationSpec kActivation{.kind = Activation::kSwigluOai, .limit = 7.f};
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.rope = rope;
    attention.spec.window = sliding[i] ? reader.window() : 0;
    attention.spec.sinks = true;
    attention.sinks.tensor = Reader::block(i, "attn_sinks.weight");
    plan.layers.push_back(reader.pre_norm(i, NormKind::kRms, std::move(attention),
                                          reader.ffn(i, kActivation, routing),
                                          "post_attention_norm"));
  }
  return plan;
}

}  // namespace lemma::model::arch
