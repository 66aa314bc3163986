// SPDX-License-Identifier: Apache-2.0
// DeepSeek V2, V3 and their kin (Kimi K2, Mistral Large 3), and Mistral 4: latent attention, a few
// dense layers, then routed experts beside shared ones. V2 scores experts by softmax and groups by
// their best expert; V3 scores by sigmoid with a correction and groups by their two best. Behind
// the last layer of V3 a block drafts. Mistral 4 raises the temperature of its queries with the
// position.
#include "model/arch/parts.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RouteScore;

algorithm::RoutingSpec routing_of(const Reader& reader) {
  bool corrected = false;
  for (std::uint32_t i = 0; i < reader.layers(); ++i)
    corrected = corrected || reader.has_tensor(Reader::block(i, "exp_probs_b.bias"));
  // Files of V2 say nothing of how experts are scored.
  algorithm::RoutingSpec routing =
      reader.routing(corrected ? RouteScore::kSigmoid : RouteScore::kSoftmax, false);
  if (routing.score == RouteScore::kSoftmax) routing.group_best = 1;
  return routing;
}

Plan latent(const Reader& reader, bool unit_magnitude) {
  Plan plan = reader.base_plan(NormKind::kRms);
  const LatentRope rope = latent_rope(reader, unit_magnitude);
  const Temperature rising = temperature(reader);
  const algorithm::RoutingSpec routing = routing_of(reader);
  const auto layer = [&](std::uint32_t i) {
    Mla attention = latent_attention(reader, i);
    turn(attention, rope);
    attention.spec.temperature_scale = rising.scale;
    attention.spec.temperature_floor = rising.floor;
    return reader.pre_norm(i, NormKind::kRms, std::move(attention),
                           reader.ffn(i, {.kind = Activation::kSilu}, routing));
  };
  for (std::uint32_t i = 0; i < reader.layers(); ++i) plan.layers.push_back(layer(i));
  reader.add_drafts(plan, layer);
  return plan;
}

}  // namespace

Plan deepseek2(const Reader& reader) {
  return latent(reader, true);
}

Plan mistral4(const Reader& reader) {
  return latent(reader, false);
}

}  // namespace lemma::model::arch
