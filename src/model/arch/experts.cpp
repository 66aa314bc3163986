// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts as GGUF keys and tensors describe them. What the keys mean: docs/contract.md,
// "Routing".
#include <string>

#include "base/raise.hpp"
#include "model/arch/arch.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::ActivationSpec;
using algorithm::RouteScore;
using algorithm::RoutingSpec;
using base::raise;

// Far above every model; it keeps the products of a plan inside 64 bits.
constexpr std::uint32_t kMaxExperts = 1u << 16;
constexpr std::uint32_t kMaxHidden = 1u << 24;

// Chosen weights are divided by their sum, but by no less than this, the smallest normal f16
// number: what the engines do for which these files are written.
constexpr float kSumFloor = 0x1p-14f;

RouteScore score_of(const Reader& reader, RouteScore fallback) {
  const std::string key = reader.key("expert_gating_func");
  switch (const std::uint32_t function = reader.metadata().u32_or(key, 0)) {
    case 0:
      return fallback;
    case 1:
      return RouteScore::kSoftmax;
    case 2:
      return RouteScore::kSigmoid;
    case 3:
      return RouteScore::kSoftmaxOverChosen;
    case 4:
      return RouteScore::kSqrtSoftplus;
    default:
      raise(ErrorKind::kUnsupported, "key '{}': expected 0 to 4, found {}", key, function);
  }
}

void check_hidden(std::uint64_t hidden, const std::string& name) {
  if (hidden == 0 || hidden > kMaxHidden)
    raise(ErrorKind::kBadFile, "'{}': expected a width of 1 to {}, found {}", name, kMaxHidden,
          hidden);
}

}  // namespace

bool Reader::routed(std::uint32_t layer) const {
  const std::uint32_t dense = metadata().u32_or(key("leading_dense_block_count"), 0);
  return metadata().u32_or(key("expert_count"), 0) > 0 && layer >= dense;
}

RoutingSpec Reader::routing(RouteScore score, bool normalize) const {
  RoutingSpec spec;
  spec.experts = metadata().u32_or(key("expert_count"), 0);
  if (spec.experts == 0) return spec;
  if (spec.experts > kMaxExperts)
    raise(ErrorKind::kBadFile, "key '{}': expected at most {}, found {}", key("expert_count"),
          kMaxExperts, spec.experts);
  spec.chosen = metadata().u32(key("expert_used_count"));
  if (spec.chosen == 0 || spec.chosen > spec.experts)
    raise(ErrorKind::kBadFile, "key '{}': expected 1 to the {} experts, found {}",
          key("expert_used_count"), spec.experts, spec.chosen);
  spec.score = score_of(*this, score);
  spec.normalize = metadata().boolean_or(key("expert_weights_norm"), normalize);
  if (spec.normalize) spec.sum_floor = kSumFloor;
  spec.scale = scale("expert_weights_scale", 1.f);
  if (const std::uint32_t groups = metadata().u32_or(key("expert_group_count"), 0); groups > 1) {
    spec.groups = groups;
    spec.kept_groups = metadata().u32(key("expert_group_used_count"));
  } else {
    metadata().u32_or(key("expert_group_used_count"), 0);  // of one group there is no choice
  }
  return spec;
}

DenseMlp Reader::shared_expert(std::uint32_t layer, const ActivationSpec& activation) const {
  DenseMlp shared;
  shared.spec.activation = activation;
  shared.spec.width = width_;
  shared.up = linear(layer, "ffn_up_shexp");
  shared.down = linear(layer, "ffn_down_shexp");
  shared.spec.gated = has_tensor(block(layer, "ffn_gate_shexp.weight"));
  if (shared.spec.gated) shared.gate = linear(layer, "ffn_gate_shexp");
  // Several shared experts are stored as one block that is as wide as all of them.
  const std::uint64_t hidden = checkpoint_->at(shared.up.weight.tensor).rows();
  check_hidden(hidden, shared.up.weight.tensor);
  shared.spec.hidden = static_cast<std::uint32_t>(hidden);
  const std::string length = key("expert_shared_feed_forward_length");
  if (const std::uint32_t one = metadata().u32_or(length, 0); one > 0 && hidden % one != 0)
    raise(ErrorKind::kBadFile, "key '{}': expected a divisor of the {} rows of '{}', found {}",
          length, hidden, shared.up.weight.tensor, one);
  return shared;
}

Moe Reader::moe(std::uint32_t layer, const ActivationSpec& activation, RoutingSpec routing) const {
  Moe moe;
  moe.routing = routing;
  moe.router = linear(layer, "ffn_gate_inp");
  if (const std::string bias = block(layer, "exp_probs_b.bias"); has_tensor(bias)) {
    moe.routing.correction = true;
    moe.correction.tensor = bias;
  }

  const std::uint32_t hidden_size =
      metadata().u32_or(key("expert_feed_forward_length"), hidden(layer));
  check_hidden(hidden_size, key("expert_feed_forward_length"));
  moe.expert = {.activation = activation, .gated = true, .width = width_, .hidden = hidden_size};
  moe.down = linear(layer, "ffn_down_exps");
  if (const std::string fused = block(layer, "ffn_gate_up_exps.weight"); has_tensor(fused)) {
    const std::uint64_t rows = hidden_size;
    moe.gate.weight = {fused, View::strided_rows(2 * rows, 0, rows)};
    moe.up.weight = {fused, View::strided_rows(2 * rows, rows, 2 * rows)};
  } else {
    moe.expert.gated = has_tensor(block(layer, "ffn_gate_exps.weight"));
    if (moe.expert.gated) moe.gate = linear(layer, "ffn_gate_exps");
    moe.up = linear(layer, "ffn_up_exps");
  }

  if (has_tensor(block(layer, "ffn_up_shexp.weight"))) {
    moe.shared = shared_expert(layer, activation);
    if (const std::string gate = block(layer, "ffn_gate_inp_shexp.weight"); has_tensor(gate))
      moe.shared_gate.tensor = gate;
  }
  const std::string shared_key = key("expert_shared_count");
  if (const std::uint32_t shared = metadata().u32_or(shared_key, 0); shared > 0 && !moe.shared)
    raise(ErrorKind::kBadFile, "key '{}' is {}, but there is no tensor '{}'", shared_key, shared,
          block(layer, "ffn_up_shexp.weight"));
  return moe;
}

Mixer Reader::ffn(std::uint32_t layer, const ActivationSpec& activation,
                  const RoutingSpec& routing) const {
  if (routed(layer)) return moe(layer, activation, routing);
  DenseMlp dense = mlp(layer, activation.kind);
  dense.spec.activation = activation;
  return dense;
}

}  // namespace lemma::model::arch
