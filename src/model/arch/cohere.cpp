// SPDX-License-Identifier: Apache-2.0
// Command-R (command-r) and Command-R7B / Command A (cohere2). One LayerNorm without bias feeds
// attention and the feed-forward block side by side; interleaved RoPE, gated SiLU, a tied head
// whose logits are multiplied by logit_scale. Command-R+ norms each head of q and k, every head
// with weights of its own. cohere2 slides in all but every fourth layer, and only sliding layers
// rotate.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan cohere_plan(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kLayer);
  plan.head.scale = reader.metadata().f32(reader.key("logit_scale"));
  return plan;
}

Layer parallel(const Reader& reader, std::uint32_t i, Gqa attention) {
  return {.sites =
              {
                  {.norm = reader.norm(i, "attn_norm", NormKind::kLayer),
                   .mixer = std::move(attention)},
                  {.shares_norm = true, .mixer = reader.mlp(i, Activation::kSilu)},
              },
          .side_by_side = true};
}

}  // namespace

Plan command_r(const Reader& reader) {
  Plan plan = cohere_plan(reader);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kInterleaved);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    if (reader.has_tensor(Reader::block(i, "attn_q_norm.weight")))
      attention.qk_norm = reader.qk_norm(i, NormKind::kLayer, QkNorm::Extent::kPerHeadOwn);
    attention.rope = rope;
    plan.layers.push_back(parallel(reader, i, std::move(attention)));
  }
  return plan;
}

Plan cohere2(const Reader& reader) {
  Plan plan = cohere_plan(reader);
  const std::uint32_t window = reader.metadata().u32(reader.key("attention.sliding_window"));
  const std::vector<bool> sliding = reader.sliding_layers(4);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kInterleaved);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    if (sliding[i]) {
      attention.spec.window = window;
      attention.rope = rope;
    }
    plan.layers.push_back(parallel(reader, i, std::move(attention)));
  }
  return plan;
}

}  // namespace lemma::model::arch
