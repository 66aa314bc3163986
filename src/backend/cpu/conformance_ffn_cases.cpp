// SPDX-License-Identifier: Apache-2.0
// Conformance cases of rows and experts: embeddings, gates, activations, routing, stacks.
#include "backend/cpu/conformance_parts.hpp"

namespace lemma::backend::conformance {
namespace {

using algorithm::Activation;
using weights::Format;
namespace tolerance = algorithm::tolerance;

// Rows.

Case embed_columns_case() {
  CaseBuilder b("embed some columns", 31);
  Embed op;
  op.table = b.weight(Format::kQ8_0, CaseBuilder::kVocabulary, 96, WeightUse::kTable);
  op.token_type = b.vector(50);
  op.begin = 20;  // within a block, and to within another
  op.scale = 0.5f;
  op.out = b.tensor(50);
  b.add(op);
  return b.finish(op.out, {});
}

Case gate_runs_case(std::uint32_t gates) {
  CaseBuilder b("gate of " + std::to_string(gates), 32);
  const Tensor in = b.embed(60), gate = b.embed(gates, 3.f), out = b.tensor(60);
  b.add(Gate{in, gate, out});
  return b.finish(out, tolerance::kElementwise);
}

algorithm::ActivationSpec activation(Activation kind, float limit = 0.f, bool after = false) {
  algorithm::ActivationSpec spec;
  spec.kind = kind;
  spec.limit = limit;
  spec.limit_after = after;
  return spec;
}

std::vector<algorithm::ActivationSpec> activations() {
  std::vector<algorithm::ActivationSpec> specs = {activation(Activation::kSilu),
                                                  activation(Activation::kSilu, 1.5f),
                                                  activation(Activation::kSilu, 1.f, true),
                                                  activation(Activation::kGeluTanh),
                                                  activation(Activation::kGeluErf),
                                                  activation(Activation::kRelu),
                                                  activation(Activation::kReluSquared),
                                                  activation(Activation::kSwigluOai, 1.f),
                                                  activation(Activation::kSitu)};
  specs.push_back(activation(Activation::kSitu));
  specs.back().beta = 2.f;
  specs.back().linear_beta = 3.f;
  return specs;
}

Case activate_case(const algorithm::ActivationSpec& spec, int number) {
  CaseBuilder b("activate " + std::to_string(number), 33);
  const Tensor gate = b.embed(45, 2.f), up = b.embed(100, 2.f), out = b.tensor(45);
  b.add(Activate{spec, 55, gate, up, out});
  return b.finish(out, tolerance::kElementwise);
}

Case mlp_case(const algorithm::ActivationSpec& spec, int number) {
  CaseBuilder b("mlp with activation " + std::to_string(number), 34);
  Mlp op;
  op.spec = {spec, true, 64, 112};
  op.in = b.embed(64, 2.f);
  op.gate = matrix(b, Format::kF32, 112, 64);
  op.up = matrix(b, Format::kF32, 112, 64);
  op.down = matrix(b, Format::kF32, 64, 112);
  op.out = b.tensor(64);
  b.add(op);
  return b.finish(op.out, tolerance::mlp(64, 112));
}

/// What `down` reads, where somebody wants to see it.
Case mlp_hidden_case(Format format, bool gated) {
  CaseBuilder b("mlp's hidden rows " + name_of(format) + (gated ? "" : ", without gate"), 36);
  Mlp op;
  op.spec = {activation(gated ? Activation::kSilu : Activation::kGeluTanh), gated, 64, 96};
  op.in = b.embed(64, 2.f);
  if (gated) op.gate = matrix(b, format, 96, 64);
  op.up = matrix(b, format, 96, 64);
  op.down = matrix(b, format, 64, 96);
  op.out = b.tensor(64);
  op.hidden = b.tensor(96);
  b.add(op);
  return b.finish(op.hidden, format, tolerance::mlp(64, 96), tolerance::kInt8Mlp);
}

Case project_groups_case(Format format, std::uint32_t in, std::uint32_t out, bool shared = false) {
  CaseBuilder b("project groups " + name_of(format) + " " + std::to_string(out) +
                    (shared ? ", one weight for all" : ""),
                35);
  ProjectGroups op;
  op.spec = {3, in, out, shared};
  op.in = b.embed(3 * in);
  op.weight = matrix(b, format, shared ? out : 3 * out, in);
  op.out = b.tensor(3 * out);
  b.add(op);
  return b.finish(op.out, format, tolerance::project(in), tolerance::kInt8Project);
}

/// Every row sees to the end of its sequence's rows of the step.
Case two_sided_case(std::uint32_t window, float alibi) {
  algorithm::GqaSpec spec{.query_heads = 4, .kv_heads = 2, .head_dim = 24, .value_dim = 16};
  spec.scale = root(24);
  spec.causal = false;
  spec.window = window;
  spec.alibi_max_bias = alibi;
  Case c = attend_case(spec, "to both sides, window " + std::to_string(window));
  c.program.whole_prompts = true;
  return c;
}

// Experts.

Case route_case(const algorithm::RoutingSpec& spec, bool ids, const std::string& name) {
  CaseBuilder b("route " + name + (ids ? ", ids" : ", weights"), 41);
  Route op;
  op.spec = spec;
  op.logits = b.embed(spec.experts, 2.f);
  if (spec.correction) op.correction = b.vector(spec.experts, 0.1f);
  if (spec.scale_per_expert) op.expert_scale = b.vector(spec.experts, 0.2f, 1.f);
  if (spec.hashed) {
    op.hash_table = b.table(spec.chosen, [&](std::uint64_t token, std::uint64_t i) {
      return static_cast<float>((token * 5 + i * 3) % spec.experts);
    });
  }
  op.ids = b.tensor(spec.chosen);
  op.weights = b.tensor(spec.chosen);
  b.add(op);
  return ids ? b.finish(op.ids, {}) : b.finish(op.weights, tolerance::kRoute);
}

std::vector<Case> route_cases() {
  std::vector<Case> cases;
  const auto add = [&](const algorithm::RoutingSpec& spec, const std::string& name) {
    for (const bool ids : {true, false}) cases.push_back(route_case(spec, ids, name));
  };
  algorithm::RoutingSpec spec{.experts = 16, .chosen = 4};
  spec.normalize = true;
  add(spec, "by softmax");
  spec.score = algorithm::RouteScore::kSigmoid;
  spec.correction = true;
  spec.groups = 4;
  spec.kept_groups = 2;
  spec.scale = 2.5f;
  spec.sum_eps = 1e-20f;
  add(spec, "by sigmoid in groups");
  spec = {.experts = 16, .chosen = 4};
  spec.score = algorithm::RouteScore::kSqrtSoftplus;
  spec.hashed = true;
  spec.normalize = true;
  add(spec, "by hash");
  spec = {.experts = 8, .chosen = 2, .score = algorithm::RouteScore::kSoftmaxOverChosen};
  spec.scale_per_expert = true;
  add(spec, "over the chosen");
  return cases;
}

struct ExpertsShape {
  Format format = Format::kF32;
  std::uint32_t width = 40, hidden = 24;  ///< by default no whole panels, so that stacks straddle
  algorithm::ActivationSpec activation;
  bool gated = true, biases = false, weigh_inputs = false;
  bool shows_hidden = false;  ///< compares what `down` reads instead of what it makes
};

Case experts_case(const ExpertsShape& shape, const std::string& name) {
  constexpr std::uint32_t kExperts = 6, kChosen = 3;
  CaseBuilder b("experts " + name_of(shape.format) + " " + name, 42);
  const std::uint64_t width = shape.width, hidden = shape.hidden;
  Route route;
  route.spec = {.experts = kExperts, .chosen = kChosen};
  route.spec.normalize = true;
  route.logits = b.embed(kExperts, 2.f);
  route.ids = b.tensor(kChosen);
  route.weights = b.tensor(kChosen);
  b.add(route);
  Experts op;
  op.spec = {shape.activation, shape.gated, shape.width, shape.hidden};
  op.experts = kExperts;
  op.weigh_inputs = shape.weigh_inputs;
  if (shape.gated) op.gate = matrix(b, shape.format, kExperts * hidden, shape.width);
  op.up = matrix(b, shape.format, kExperts * hidden, shape.width);
  op.down = matrix(b, shape.format, kExperts * width, shape.hidden);
  if (shape.biases) {
    if (shape.gated) op.gate_bias = b.vector(kExperts * hidden);
    op.up_bias = b.vector(kExperts * hidden);
    op.down_bias = b.vector(kExperts * width);
  }
  op.in = b.embed(shape.width);
  op.ids = route.ids;
  op.weights = route.weights;
  op.out = b.tensor(shape.width);
  if (shape.shows_hidden) op.hidden = b.tensor(kChosen * shape.hidden);
  b.add(op);
  return b.finish(shape.shows_hidden ? op.hidden : op.out, shape.format,
                  tolerance::mlp(shape.width, shape.hidden), tolerance::kInt8Mlp);
}

std::vector<Case> experts_cases() {
  std::vector<Case> cases;
  cases.push_back(experts_case({}, "of odd widths"));
  cases.push_back(experts_case({.width = 64, .hidden = 80, .biases = true}, "with biases"));
  cases.push_back(experts_case({.weigh_inputs = true}, "of weighed inputs"));
  ExpertsShape plain{.activation = activation(Activation::kReluSquared), .gated = false};
  cases.push_back(experts_case(plain, "without gate"));
  plain = {.activation = activation(Activation::kSwigluOai, 1.f), .biases = true};
  cases.push_back(experts_case(plain, "clamped"));
  for (const Format format :
       {Format::kF16, Format::kBF16, Format::kQ8_0, Format::kQ4_0, Format::kQ4_K, Format::kQ6_K}) {
    cases.push_back(experts_case({.format = format, .width = 256, .hidden = 256}, ""));
  }
  // Stacks of 32 rows over 288 columns, and inputs that are rounded after they were weighed.
  cases.push_back(experts_case(
      {.format = Format::kQ8_0, .width = 288, .hidden = 32, .weigh_inputs = true}, "weighed"));
  cases.push_back(experts_case({.shows_hidden = true}, "hidden rows"));
  cases.push_back(experts_case(
      {.format = Format::kQ8_0, .width = 64, .hidden = 96, .biases = true, .shows_hidden = true},
      "hidden rows"));
  plain = {.activation = activation(Activation::kReluSquared), .gated = false};
  plain.weigh_inputs = plain.shows_hidden = true;
  cases.push_back(experts_case(plain, "hidden rows of weighed inputs, without gate"));
  return cases;
}

}  // namespace

std::vector<Case> row_family_cases() {
  std::vector<Case> cases;
  cases.push_back(embed_columns_case());
  for (const std::uint32_t gates : {1u, 3u}) cases.push_back(gate_runs_case(gates));
  int number = 0;
  for (const algorithm::ActivationSpec& spec : activations()) {
    cases.push_back(activate_case(spec, number));
    cases.push_back(mlp_case(spec, number++));
  }
  cases.push_back(mlp_hidden_case(Format::kF32, true));
  cases.push_back(mlp_hidden_case(Format::kQ8_0, true));
  cases.push_back(mlp_hidden_case(Format::kBF16, false));
  cases.push_back(project_groups_case(Format::kF32, 24, 21));
  cases.push_back(project_groups_case(Format::kBF16, 32, 32));
  cases.push_back(project_groups_case(Format::kQ8_0, 64, 120));
  cases.push_back(project_groups_case(Format::kF32, 24, 70, true));
  cases.push_back(project_groups_case(Format::kQ8_0, 64, 120, true));
  cases.push_back(two_sided_case(0, 0.f));
  cases.push_back(two_sided_case(9, 8.f));
  return cases;
}

std::vector<Case> expert_family_cases() {
  std::vector<Case> cases = route_cases();
  for (Case& c : experts_cases()) cases.push_back(std::move(c));
  return cases;
}

}  // namespace lemma::backend::conformance
