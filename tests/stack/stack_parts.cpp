// SPDX-License-Identifier: Apache-2.0
// Residual styles, sites and feed-forwards of the stack.
#include "stack_parts.hpp"

#include <utility>

namespace lemma::test {

using algorithm::Activation;
using algorithm::ActivationSpec;
using algorithm::RouteScore;
using algorithm::RoutingSpec;

namespace {

constexpr std::uint32_t kStreams = 3;  // two cannot show which way streams are mixed
constexpr std::uint32_t kExperts = 6, kChosen = 2, kExpertHidden = 32, kLatent = 32;

RoutingSpec routing(RouteScore score) {
  RoutingSpec spec;
  spec.experts = kExperts;
  spec.chosen = kChosen;
  spec.score = score;
  spec.normalize = true;
  return spec;
}

}  // namespace

model::Residual StackParts::residual(Wiring wiring) {
  if (wiring == Wiring::kThreeStreams) {
    model::HyperConnections hyper;
    hyper.spec = {.streams = kStreams, .width = kStackWidth, .iterations = 6};
    hyper.leave = streams("leave", kStreams, 1);
    return hyper;
  }
  if (wiring == Wiring::kBlocksOfTwo) {
    model::AttentionResidual blocks;
    blocks.spec = {.block_size = 2, .width = kStackWidth};
    blocks.leave = block_mix("leave");
    return blocks;
  }
  return {};
}

model::Site StackParts::site(model::Mixer mixer, Wiring wiring) {
  model::Site site;
  site.norm = norm("site_norm", kStackWidth);
  site.mixer = std::move(mixer);
  if (wiring == Wiring::kThreeStreams)
    site.streams = streams("streams", (2 + kStreams) * kStreams, 3);
  if (wiring == Wiring::kBlocksOfTwo) site.block_mix = block_mix("block_mix");
  return site;
}

model::StreamWeights StackParts::streams(const std::string& name, std::uint32_t rows,
                                         std::uint32_t scales) {
  return {.fn = weights_.precise(named(name + ".fn"), rows, kStreams * kStackWidth),
          .base = weights_.vector(named(name + ".base"), rows, -1.f, 1.f),
          .scale = weights_.vector(named(name + ".scale"), scales, 0.5f, 1.5f)};
}

model::BlockMixWeights StackParts::block_mix(const std::string& name) {
  return {.norm = weights_.vector(named(name + ".norm"), kStackWidth, 0.75f, 1.25f),
          .projection = weights_.vector(named(name + ".projection"), kStackWidth, -0.3f, 0.3f)};
}

model::Norm StackParts::norm(const std::string& name, std::uint32_t width) {
  return {.spec = {}, .weight = weights_.vector(named(name), width, 0.75f, 1.25f), .bias = {}};
}

model::Linear StackParts::linear(const std::string& name, std::uint64_t rows, std::uint64_t cols,
                                 bool bias) {
  model::Linear linear;
  linear.weight = weights_.matrix(named(name), rows, cols);
  if (bias) linear.bias = weights_.vector(named(name + ".bias"), rows, -0.2f, 0.2f);
  return linear;
}

model::Mixer StackParts::channel_mixer(std::uint32_t kind) {
  RoutingSpec route;
  switch (kind) {
    case 0:
      return dense({.kind = Activation::kSilu}, 96, false);
    case 1:
      return dense({.kind = Activation::kSilu, .limit = 0.75f}, 96, false);
    case 2:
      return dense({.kind = Activation::kSwigluOai, .limit = 1.5f}, 96, true);
    case 3:
      return dense({.kind = Activation::kGeluTanh}, 96, false);
    case 4:
      return dense({.kind = Activation::kSitu, .beta = 1.f, .linear_beta = 1.f}, 96, false);
    case 5:
      return experts(routing(RouteScore::kSoftmax), {}, kStackWidth, true);
    case 6: {
      route = routing(RouteScore::kSigmoid);
      route.correction = true;
      route.groups = 3;
      route.kept_groups = 2;
      route.scale = 2.5f;
      model::Moe moe = experts(route, {}, kStackWidth, true);
      moe.shared = dense({}, kExpertHidden, false, "shared.");
      return moe;
    }
    case 7:
      route = routing(RouteScore::kSqrtSoftplus);
      route.correction = true;
      route.scale = 1.5f;
      return experts(route, {.kind = Activation::kSilu, .limit = 0.75f}, kStackWidth, true);
    case 8:
      route = routing(RouteScore::kSqrtSoftplus);
      route.hashed = true;
      return experts(route, {}, kStackWidth, true);
    default:
      return latent_experts(routing(RouteScore::kSigmoid));
  }
}

model::DenseMlp StackParts::dense(const ActivationSpec& activation, std::uint32_t hidden,
                                  bool biases, const std::string& name) {
  model::DenseMlp mlp;
  mlp.spec = {.activation = activation, .gated = true, .width = kStackWidth, .hidden = hidden};
  mlp.gate = linear(name + "gate", hidden, kStackWidth, biases);
  mlp.up = linear(name + "up", hidden, kStackWidth, biases);
  mlp.down = linear(name + "down", kStackWidth, hidden, biases);
  return mlp;
}

model::Moe StackParts::experts(const RoutingSpec& routing, const ActivationSpec& activation,
                               std::uint32_t width, bool gated) {
  model::Moe moe;
  moe.routing = routing;
  moe.expert = {.activation = activation, .gated = gated, .width = width, .hidden = kExpertHidden};
  moe.router.weight = weights_.precise(named("router"), kExperts, kStackWidth);
  if (routing.correction)
    moe.correction = weights_.vector(named("correction"), kExperts, -0.3f, 0.3f);
  if (routing.hashed)
    moe.hash_table =
        weights_.table(named("experts_of_tokens"), kStackVocabulary, kChosen, kExperts);
  if (gated) moe.gate = linear("experts.gate", kExperts * kExpertHidden, width);
  moe.up = linear("experts.up", kExperts * kExpertHidden, width);
  moe.down = linear("experts.down", kExperts * width, kExpertHidden);
  return moe;
}

model::Moe StackParts::latent_experts(const RoutingSpec& routing) {
  model::Moe moe = experts(routing, {.kind = Activation::kReluSquared}, kLatent, false);
  moe.latent_down = linear("latent_down", kLatent, kStackWidth);
  moe.latent_up = linear("latent_up", kStackWidth, kLatent);
  moe.latent_norm = norm("latent_norm", kLatent);
  moe.shared = dense({}, kExpertHidden, false, "shared.");
  return moe;
}

}  // namespace lemma::test
