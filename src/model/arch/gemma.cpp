// SPDX-License-Identifier: Apache-2.0
// Gemma 1 to 3. RMS norms (the converter has already added the 1 of their 1 + w), embeddings times
// sqrt(D), a tied head, gated GELU (tanh), split-half RoPE. Gemma 2 adds a norm of each branch,
// soft-caps, and a sliding window in every other layer; Gemma 3 drops the caps of attention, norms
// the heads of q and k, and slides in all but every sixth layer.
#include <cmath>

#include "model/arch/arch.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;
using algorithm::RopeSpec;

Plan gemma_plan(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kRms);
  plan.embedding.scale = std::sqrt(static_cast<float>(reader.width()));
  return plan;
}

// Gemma 2 and 3 scale scores by query_pre_attn_scalar^-0.5, and files do not carry that number. It
// is the head size wherever heads have 256 dims; the models with heads of 128 (the 27B ones) take
// D / H instead: 4608 / 32 = 144 and 5376 / 32 = 168.
float query_scale(const Reader& reader, std::uint32_t layer) {
  const std::uint32_t scalar =
      reader.head_dim() == 128 ? reader.width() / reader.heads(layer) : reader.head_dim();
  return reader.scale("attention.scale", 1.f / std::sqrt(static_cast<float>(scalar)));
}

// Both branches are normed on their way in and on their way out.
Layer sandwich(const Reader& reader, std::uint32_t i, Gqa attention) {
  return {.sites = {
              {.norm = reader.norm(i, "attn_norm", NormKind::kRms),
               .mixer = std::move(attention),
               .branch_norm = reader.norm(i, "post_attention_norm", NormKind::kRms)},
              {.norm = reader.norm(i, "ffn_norm", NormKind::kRms),
               .mixer = reader.mlp(i, Activation::kGeluTanh),
               .branch_norm = reader.norm(i, "post_ffw_norm", NormKind::kRms)},
          }};
}

}  // namespace

Plan gemma(const Reader& reader) {
  Plan plan = gemma_plan(reader);
  const RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.rope = rope;
    plan.layers.push_back(reader.pre_norm(i, NormKind::kRms, std::move(attention),
                                          reader.mlp(i, Activation::kGeluTanh)));
  }
  return plan;
}

Plan gemma2(const Reader& reader) {
  const weights::Metadata& keys = reader.metadata();
  Plan plan = gemma_plan(reader);
  plan.head.softcap = keys.f32_or(reader.key("final_logit_softcapping"), 30.f);
  const float softcap = keys.f32_or(reader.key("attn_logit_softcapping"), 50.f);
  const std::uint32_t window = keys.u32_or(reader.key("attention.sliding_window"), 4096);
  const std::vector<bool> sliding = reader.sliding_layers(2);
  const RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  RopeSpec local = rope;
  local.theta = keys.f32_or(reader.key("rope.freq_base_swa"), rope.theta);

  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.spec.scale = query_scale(reader, i);
    attention.spec.softcap = softcap;
    attention.spec.window = sliding[i] ? window : 0;
    attention.rope = sliding[i] ? local : rope;
    plan.layers.push_back(sandwich(reader, i, std::move(attention)));
  }
  return plan;
}

Plan gemma3(const Reader& reader) {
  const weights::Metadata& keys = reader.metadata();
  Plan plan = gemma_plan(reader);
  plan.head.softcap = keys.f32_or(reader.key("final_logit_softcapping"), 0.f);
  const std::uint32_t window = reader.window();
  std::vector<bool> sliding = reader.sliding_layers(6);
  if (window == 0) sliding.assign(sliding.size(), false);
  // Scaling, and the long base, are for the global layers only.
  const RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  const RopeSpec local = unscaled(rope, keys.f32_or(reader.key("rope.freq_base_swa"), 10000.f));

  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.spec.scale = query_scale(reader, i);
    attention.spec.window = sliding[i] ? window : 0;
    attention.qk_norm = reader.qk_norm(i, NormKind::kRms, QkNorm::Extent::kPerHead);
    attention.rope = sliding[i] ? local : rope;
    plan.layers.push_back(sandwich(reader, i, std::move(attention)));
  }
  return plan;
}

}  // namespace lemma::model::arch
