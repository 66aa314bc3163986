// SPDX-License-Identifier: Apache-2.0
// Kimi Linear and Ling 3 (bailingmoe3): layers without KV heads are KDA, the others latent
// attention; a dense layer or more, then routed experts beside shared ones. Kimi's latent attention
// does not turn at all. Ling's turns, multiplies each head by a sigmoid of its own, bounds KDA's
// decay below, and caps the SiLU of experts and of shared experts, layer by layer.
#include "base/raise.hpp"
#include "model/arch/kda.hpp"
#include "model/arch/parts.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RouteScore;
using base::raise;

Layer layer_of(const Reader& reader, std::uint32_t i, Mixer attention, Mixer ffn) {
  return {.sites = {
              {.norm = reader.norm(i, "attn_norm", NormKind::kRms), .mixer = std::move(attention)},
              {.norm = reader.norm(i, "ffn_norm", NormKind::kRms), .mixer = std::move(ffn)},
          }};
}

// A limit of 0 is none.
algorithm::ActivationSpec capped_silu(float limit) {
  return {.kind = Activation::kSilu, .limit = limit, .limit_after = limit > 0.f};
}

}  // namespace

Plan kimi_linear(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::KdaSpec spec = kda_spec(reader, 0);
  const algorithm::RoutingSpec routing = reader.routing(RouteScore::kSigmoid, true);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Mixer attention = reader.kv_heads(i) == 0 ? Mixer(kimi_delta(reader, i, spec))
                                              : Mixer(latent_attention(reader, i));
    plan.layers.push_back(layer_of(reader, i, std::move(attention),
                                   reader.ffn(i, {.kind = Activation::kSilu}, routing)));
  }
  return plan;
}

Plan bailingmoe3(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  algorithm::KdaSpec spec = kda_spec(reader, 0);
  if (const std::string key = reader.key("kda.safe_gate"); !reader.metadata().boolean_or(key, true))
    raise(ErrorKind::kUnsupported, "key '{}': expected true, a decay with a lower bound", key);
  spec.lower_bound = reader.metadata().f32(reader.key("kda.gate_lower_bound"));
  const LatentRope rope = latent_rope(reader, false);
  const algorithm::RoutingSpec routing = reader.routing(RouteScore::kSigmoid, true);
  const std::vector<float> limit = limits(reader, "swiglu_clamp_exp", 0.f);
  const std::vector<float> shared_limit = limits(reader, "swiglu_clamp_shexp", 0.f);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Mixer attention = Mixer(Mla());
    if (reader.kv_heads(i) == 0) {
      attention = kimi_delta(reader, i, spec);
    } else {
      Mla mla = latent_attention(reader, i);
      turn(mla, rope);
      mla.spec.output_gate = mla.gate_per_head = true;
      mla.gate = reader.linear(i, "attn_gate");
      attention = std::move(mla);
    }
    Mixer ffn = reader.ffn(i, {.kind = Activation::kSilu}, routing);
    if (auto* moe = std::get_if<Moe>(&ffn)) {
      moe->expert.activation = capped_silu(limit[i]);
      if (moe->shared) moe->shared->spec.activation = capped_silu(shared_limit[i]);
    } else if (limit[i] != 0.f || shared_limit[i] != 0.f) {
      raise(ErrorKind::kUnsupported,
            "keys '{}' and '{}': expected 0 in layer {}, which has no experts, found {} and {}",
            reader.key("swiglu_clamp_exp"), reader.key("swiglu_clamp_shexp"), i, limit[i],
            shared_limit[i]);
    }
    plan.layers.push_back(layer_of(reader, i, std::move(attention), std::move(ffn)));
  }
  return plan;
}

}  // namespace lemma::model::arch
