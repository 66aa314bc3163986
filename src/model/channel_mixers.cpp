// SPDX-License-Identifier: Apache-2.0
// The channel mixers as operations.
#include "base/check.hpp"
#include "model/recorder.hpp"

namespace lemma::model {

using backend::Tensor;
using backend::WeightUse;

Tensor Recorder::mix(const DenseMlp& mlp, Input input) {
  const algorithm::MlpSpec& spec = mlp.spec;
  backend::Mlp op;
  op.spec = spec;
  op.gate = bind(mlp.gate.weight, spec.hidden, spec.width, WeightUse::kMatrix);
  op.up = bind(mlp.up.weight, spec.hidden, spec.width, WeightUse::kMatrix);
  op.down = bind(mlp.down.weight, spec.width, spec.hidden, WeightUse::kMatrix);
  op.gate_bias = bind_vector(mlp.gate.bias, spec.hidden);
  op.up_bias = bind_vector(mlp.up.bias, spec.hidden);
  op.down_bias = bind_vector(mlp.down.bias, spec.width);
  op.in = input.normed;
  op.out = tensor("output", spec.width);
  emit(op);
  return op.out;
}

Tensor Recorder::mix(const Moe& moe, Input input) {
  const algorithm::MlpSpec& spec = moe.expert;
  const std::uint64_t experts = moe.routing.experts;
  const auto [ids, weights] = route(moe, input);
  Tensor in = input.normed;
  if (moe.latent_down) in = project(moe.latent_down, in, spec.width, "latent");

  backend::Experts op{.spec = spec, .experts = moe.routing.experts};
  op.weigh_inputs = moe.weigh_inputs;
  op.gate = bind(moe.gate.weight, experts * spec.hidden, spec.width, WeightUse::kMatrix);
  op.up = bind(moe.up.weight, experts * spec.hidden, spec.width, WeightUse::kMatrix);
  op.down = bind(moe.down.weight, experts * spec.width, spec.hidden, WeightUse::kMatrix);
  op.gate_bias = bind(moe.gate.bias, experts, spec.hidden, WeightUse::kVector);
  op.up_bias = bind(moe.up.bias, experts, spec.hidden, WeightUse::kVector);
  op.down_bias = bind(moe.down.bias, experts, spec.width, WeightUse::kVector);
  op.in = in;
  op.ids = ids;
  op.weights = weights;
  op.out = tensor("experts", spec.width);
  emit(op);

  Tensor out = op.out;
  if (moe.latent_norm) out = norm(*moe.latent_norm, out, "latent_norm");
  if (moe.latent_up) out = project(moe.latent_up, out, plan_.width, "latent_up");
  return moe.shared ? add(out, shared_experts(moe, input.normed), "sum") : out;
}

std::pair<Tensor, Tensor> Recorder::route(const Moe& moe, Input input) {
  const algorithm::RoutingSpec& spec = moe.routing;
  Tensor x = moe.router_norm ? norm(*moe.router_norm, input.stream, "router_norm") : input.normed;
  if (moe.router_scale != 1.f) x = add(x, x, "router_scaled", 0.f, moe.router_scale);
  backend::Route op{.spec = spec, .logits = project(moe.router, x, spec.experts, "router")};
  op.correction = bind_vector(moe.correction, spec.experts);
  op.expert_scale = bind_vector(moe.expert_scale, spec.experts);
  op.hash_table = weights_.bind_routes(moe.hash_table, plan_.vocabulary, spec);
  op.ids = tensor("experts_chosen", spec.chosen);
  op.weights = tensor("expert_weights", spec.chosen);
  emit(op);
  return {op.ids, op.weights};
}

Tensor Recorder::shared_experts(const Moe& moe, Tensor x) {
  const std::string prefix = prefix_;
  prefix_ += "shared.";
  Tensor out = mix(*moe.shared, {x, x});
  if (moe.shared_gate) out = gate(out, project({.weight = moe.shared_gate}, x, 1, "gate"), "gated");
  prefix_ = prefix;
  return out;
}

Tensor Recorder::mix(const FfnSum& sum, Input input) {
  const std::string prefix = prefix_;
  Tensor total;
  for (std::size_t i = 0; i < sum.parts.size(); ++i) {
    const FfnSum::Part& part = sum.parts[i];
    prefix_ = prefix + "part" + std::to_string(i) + ".";
    Input own = input;
    if (part.norm) own.normed = norm(*part.norm, input.stream, "norm");
    Tensor out = std::visit([&](const auto& mixer) { return mix(mixer, own); }, part.mixer);
    if (part.branch_norm) out = norm(*part.branch_norm, out, "branch_norm");
    total = total ? add(total, out, "sum") : out;
  }
  prefix_ = prefix;
  return total;
}

Tensor Recorder::mix(const PerLayerInput& per_layer, Input input) {
  LEMMA_CHECK(bool(per_layer_));
  const Tensor gate = project(per_layer.gate, input.normed, per_layer.width, "gate");
  backend::Activate op{.spec = per_layer.activation, .gate = gate, .up = per_layer_};
  op.up_begin = per_layer.index * per_layer.width;
  op.out = tensor("gated", per_layer.width);
  emit(op);
  return project(per_layer.output, op.out, plan_.width, "output");
}

}  // namespace lemma::model
