// SPDX-License-Identifier: Apache-2.0
// The conformance cases of the families: experts, latents, selections, recurrent mixers, residual
// streams. Inputs come straight from embeddings, so what is compared is the operation alone.
#include <cmath>

#include "backend/cpu/conformance.hpp"

namespace lemma::backend::conformance {
namespace {

using algorithm::Activation;
using algorithm::Tolerance;
using weights::Format;
namespace tolerance = algorithm::tolerance;

bool is_float(Format format) {
  return format == Format::kF32 || format == Format::kF16 || format == Format::kBF16;
}

std::string name_of(Format format) {
  return std::string(weights::traits(format).name);
}

float root(std::uint32_t n) {
  return 1.f / std::sqrt(static_cast<float>(n));
}

WeightId matrix(CaseBuilder& b, Format format, std::uint64_t rows, std::uint32_t cols) {
  return b.weight(format, rows, cols, WeightUse::kMatrix, root(cols));
}

/// New slots for a spec's, in order; returns the first.
SlotId slots(CaseBuilder& b, const algorithm::Slots& added) {
  const auto first = static_cast<SlotId>(b.program().slots.size());
  for (const algorithm::Slot& slot : added) b.program().slots.push_back(slot);
  return first;
}

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

Case project_groups_case(Format format, std::uint32_t in, std::uint32_t out) {
  CaseBuilder b("project groups " + name_of(format) + " " + std::to_string(out), 35);
  ProjectGroups op;
  op.spec = {3, in, out};
  op.in = b.embed(3 * in);
  op.weight = matrix(b, format, 3 * out, in);
  op.out = b.tensor(3 * out);
  b.add(op);
  return b.finish(op.out, is_float(format) ? tolerance::project(in) : tolerance::kInt8Project);
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
  b.add(op);
  return b.finish(op.out, is_float(shape.format) ? tolerance::mlp(shape.width, shape.hidden)
                                                 : tolerance::kInt8Mlp);
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
  return cases;
}

// Selections and what attends to them.

Case attend_blocks_case(std::uint32_t block_size, std::uint32_t top_k, bool selection_itself) {
  CaseBuilder b("attend to " + std::to_string(top_k) + " blocks of " + std::to_string(block_size),
                51);
  algorithm::MsaSpec spec;
  spec.heads = {.query_heads = 6, .kv_heads = 2, .head_dim = 20, .value_dim = 12};
  spec.heads.scale = root(20);
  spec.index_heads = 2;
  spec.index_dim = 24;
  spec.block_size = block_size;
  spec.top_k = top_k;
  const SlotId first = slots(b, spec.slots());
  b.add(Store{first, b.embed(2 * 20)});
  b.add(Store{first + 1, b.embed(2 * 12)});
  b.add(Store{first + 2, b.embed(24)});
  Select select;
  select.rule = spec;
  select.keys = first + 2;
  select.query = b.embed(2 * 24);
  select.out = b.tensor(2 * (1 + spec.list_limit()));
  b.add(select);
  if (selection_itself) return b.finish(select.out, {});
  Attend attend;
  attend.spec = spec.heads;
  attend.key = first;
  attend.value = first + 1;
  attend.query = b.embed(6 * 20);
  attend.selection = select.out;
  attend.out = b.tensor(6 * 12);
  b.add(attend);
  return b.finish(attend.out, tolerance::kAttend);
}

/// The same attention over all keys as a range and as a list, with equal weights.
Case attend_all_case(bool listed) {
  CaseBuilder b(listed ? "attend to a list of all keys" : "attend to all keys", 55);
  algorithm::MsaSpec spec;
  spec.heads = {.query_heads = 4, .kv_heads = 2, .head_dim = 20, .value_dim = 12};
  spec.heads.scale = root(20);
  spec.index_heads = 2;
  spec.index_dim = 16;
  spec.block_size = 3;
  spec.top_k = 80;
  const SlotId first = slots(b, spec.slots());
  b.add(Store{first, b.embed(2 * 20)});
  b.add(Store{first + 1, b.embed(2 * 12)});
  Select select;
  select.rule = spec;
  select.keys = first + 2;
  b.add(Store{first + 2, b.embed(16)});
  select.query = b.embed(2 * 16);
  select.out = b.tensor(2 * (1 + spec.list_limit()));
  b.add(select);
  Attend attend;
  attend.spec = spec.heads;
  attend.key = first;
  attend.value = first + 1;
  attend.query = b.embed(4 * 20);
  if (listed) attend.selection = select.out;
  attend.out = b.tensor(4 * 12);
  b.add(attend);
  return b.finish(attend.out, tolerance::kAttend);
}

struct LatentShape {
  Format format = Format::kF32;
  std::uint32_t heads = 3, latent_rank = 36, nope_dim = 20, rope_dim = 8, value_dim = 12;
  bool transposed = false;
};

AttendLatent latent_operation(CaseBuilder& b, const LatentShape& shape, SlotId& next) {
  AttendLatent op;
  op.spec.heads = shape.heads;
  op.spec.latent_rank = shape.latent_rank;
  op.spec.nope_dim = shape.nope_dim;
  op.spec.rope_dim = shape.rope_dim;
  op.spec.use_rope = shape.rope_dim > 0;
  op.spec.value_dim = shape.value_dim;
  op.spec.scale = root(shape.nope_dim + shape.rope_dim);
  op.spec.temperature_scale = 0.1f;
  op.spec.temperature_floor = 8;
  op.latent = slots(b, op.spec.slots());
  b.add(Store{op.latent, b.embed(shape.latent_rank)});
  next = op.latent + 1;
  if (shape.rope_dim > 0) {
    op.rope = next++;
    b.add(Store{op.rope, b.embed(shape.rope_dim)});
  }
  const std::uint64_t heads = shape.heads;
  op.key_up_transposed = shape.transposed;
  op.key_up = shape.transposed ? matrix(b, shape.format, heads * shape.latent_rank, shape.nope_dim)
                               : matrix(b, shape.format, heads * shape.nope_dim, shape.latent_rank);
  op.value_up = matrix(b, shape.format, heads * shape.value_dim, shape.latent_rank);
  op.query = b.embed(shape.heads * op.spec.query_dim());
  return op;
}

/// The reference's expanded form against the absorbed one; two products may round to int8.
Tolerance latent_tolerance(const LatentShape& shape) {
  const Tolerance exact = tolerance::absorbed(shape.latent_rank);
  return is_float(shape.format) ? exact : exact + 2.0 * tolerance::kInt8Project;
}

Case latent_case(const LatentShape& shape, const std::string& name) {
  CaseBuilder b("attend latent " + name_of(shape.format) + " " + name, 52);
  SlotId next = 0;
  AttendLatent op = latent_operation(b, shape, next);
  op.out = b.tensor(shape.heads * shape.value_dim);
  b.add(op);
  return b.finish(op.out, latent_tolerance(shape));
}

Case latent_tokens_case(std::uint32_t top_k, std::uint32_t kpool, bool selection_itself) {
  const LatentShape shape;
  CaseBuilder b(
      "attend latent, " + std::to_string(top_k) + " tokens, pools of " + std::to_string(kpool), 53);
  SlotId next = 0;
  AttendLatent op = latent_operation(b, shape, next);
  algorithm::DsaSpec spec;
  spec.attention = op.spec;
  spec.attention.q_rank = 16;
  spec.indexer = {.heads = 4, .dim = 24, .rope_dim = 0, .top_k = top_k};
  spec.kpool = kpool;
  spec.always_select_tail = kpool > 0;
  Select select;
  select.rule = spec;
  if (kpool > 0) {
    Compress compress;
    compress.spec = spec.pools();
    compress.rows = slots(b, spec.pools().slots());
    compress.frontier = compress.rows + 1;
    compress.bias = b.vector(std::uint64_t{kpool} * 24);
    compress.value = b.embed(24);
    compress.gate = b.embed(24, 2.f);
    select.keys = compress.rows;
    b.add(compress);
  } else {
    select.keys = slots(b, {spec.slots().back()});
    b.add(Store{select.keys, b.embed(24)});
  }
  select.query = b.embed(4 * 24);
  select.weights = b.embed(4);
  select.out = b.tensor(1 + spec.list_limit());
  b.add(select);
  if (selection_itself) return b.finish(select.out, {});
  op.selection = select.out;
  op.out = b.tensor(shape.heads * shape.value_dim);
  b.add(op);
  return b.finish(op.out, latent_tolerance(shape));
}

/// Latent attention over all tokens as a range and as a list, with equal weights.
Case latent_all_case(bool listed) {
  const LatentShape shape;
  CaseBuilder b(listed ? "attend latent, a list of all" : "attend latent, all", 56);
  SlotId next = 0;
  AttendLatent op = latent_operation(b, shape, next);
  algorithm::DsaSpec spec;
  spec.attention = op.spec;
  spec.attention.q_rank = 16;
  spec.indexer = {.heads = 2, .dim = 16, .rope_dim = 0, .top_k = 240};
  Select select;
  select.rule = spec;
  select.keys = slots(b, {spec.slots().back()});
  b.add(Store{select.keys, b.embed(16)});
  select.query = b.embed(2 * 16);
  select.weights = b.embed(2);
  select.out = b.tensor(1 + spec.list_limit());
  b.add(select);
  if (listed) op.selection = select.out;
  op.out = b.tensor(shape.heads * shape.value_dim);
  b.add(op);
  return b.finish(op.out, latent_tolerance(shape));
}

/// A layer of DeepSeek V4: its window alone (ratio 0), with entries, with chosen entries.
Case compressed_case(std::uint32_t ratio, bool overlap, bool indexed) {
  CaseBuilder b("attend compressed, ratio " + std::to_string(ratio) +
                    (overlap ? ", overlapping" : "") + (indexed ? ", chosen" : ""),
                54);
  algorithm::CompressedSparseSpec spec;
  spec.heads = 5;
  spec.head_dim = 40;
  spec.q_rank = 16;
  spec.window = 9;
  spec.scale = root(40);
  spec.rope.rotary_dim = 16;
  spec.rope.placement = algorithm::RopePlacement::kSuffix;
  spec.ratio = ratio;
  spec.overlap = overlap;
  spec.output_groups = 1;
  spec.output_rank = 8;
  spec.indexer = {.heads = 3, .dim = 24, .rope_dim = 16, .top_k = 3};
  if (indexed) spec.selection = algorithm::EntrySelection::kIndexer;
  const SlotId first = slots(b, spec.slots());
  const auto compress = [&](const algorithm::CompressorSpec& entries, SlotId rows) {
    Compress op;
    op.spec = entries;
    op.entry = spec;
    op.rows = rows;
    op.frontier = rows + 1;
    op.bias = b.vector(std::uint64_t{ratio} * entries.channels());
    op.norm = b.vector(entries.width, 0.2f, 1.f);
    op.value = b.embed(entries.channels());
    op.gate = b.embed(entries.channels(), 2.f);
    b.add(op);
  };
  AttendCompressed op;
  op.spec = spec;
  op.rows = first;
  b.add(Store{first, b.embed(40)});
  if (ratio > 0) {
    op.entries = first + 1;
    compress(spec.entries(), op.entries);
  }
  if (indexed) {
    Select select;
    select.rule = spec;
    select.keys = first + 3;
    compress(spec.index_entries(), select.keys);
    select.query = b.embed(3 * 24);
    select.weights = b.embed(3);
    select.out = b.tensor(1 + 3);
    b.add(select);
    op.selection = select.out;
  }
  op.sinks = b.vector(5);
  op.query = b.embed(5 * 40);
  op.out = b.tensor(5 * 40);
  b.add(op);
  // Entries are pooled, normed and turned before they are attended to.
  return b.finish(
      op.out, tolerance::kAttend + tolerance::kElementwise + tolerance::kNorm + tolerance::kRotate);
}

// Recurrent mixers.

/// Three channels tensors or one, and as many convolutions, or one behind three tensors.
Case delta_net_case(algorithm::KeyHeads mapping, bool three, std::uint32_t kernel,
                    std::uint32_t value_dim, bool one_convolution = false) {
  CaseBuilder b("gated delta net, kernel " + std::to_string(kernel) + ", values of " +
                    std::to_string(value_dim) + (three ? ", three convolutions" : ""),
                61);
  algorithm::GatedDeltaNetSpec spec;
  spec.key_heads = 2;
  spec.value_heads = 4;
  spec.key_dim = 20;
  spec.value_dim = value_dim;
  spec.kernel = kernel;
  spec.mapping = mapping;
  Recur op;
  op.spec = spec;
  const SlotId first = slots(b, spec.slots());
  op.matrix = first;
  if (kernel > 1) op.history = first + 1;
  const std::uint32_t keys = 2 * 20, values = 4 * value_dim;
  for (const std::uint32_t width :
       three ? std::vector{keys, keys, values} : std::vector{spec.channels()}) {
    op.channels.push_back(b.embed(width));
    if (one_convolution) continue;
    op.convolutions.push_back(b.vector(std::uint64_t{width} * kernel));
  }
  if (one_convolution) {
    op.convolutions.push_back(b.vector(std::uint64_t{spec.channels()} * kernel));
  }
  op.rate = b.vector(4);
  op.dt_bias = b.vector(4);
  op.norm = b.vector(value_dim, 0.2f, 1.f);
  op.decay = b.embed(4);
  op.beta = b.embed(4);
  op.gate = b.embed(values);
  op.out = b.tensor(values);
  b.add(op);
  return b.finish(op.out, tolerance::recurrent(64, 1.0) + tolerance::kNorm);
}

Case kda_case(float bound, bool normalize, bool three) {
  CaseBuilder b("kda, bound " + std::to_string(bound), 62);
  algorithm::KdaSpec spec;
  spec.heads = 3;
  spec.dim = 24;
  spec.kernel = 4;
  spec.lower_bound = bound;
  spec.normalize_keys = normalize;
  Recur op;
  op.spec = spec;
  op.matrix = slots(b, spec.slots());
  op.history = op.matrix + 1;
  for (const std::uint32_t width : three ? std::vector{72u, 72u, 72u} : std::vector{3 * 72u}) {
    // Keys that are not normalised must be short, or the state grows without end.
    op.channels.push_back(b.embed(width, normalize ? 1.f : 0.3f));
    op.convolutions.push_back(b.vector(std::uint64_t{width} * 4, 0.5f));
  }
  op.rate = b.vector(3);
  op.dt_bias = b.vector(72);
  op.norm = b.vector(24, 0.2f, 1.f);
  op.decay = b.embed(72);
  op.beta = b.embed(3);
  op.gate = b.embed(72);
  op.out = b.tensor(72);
  b.add(op);
  return b.finish(op.out, tolerance::recurrent(64, 1.0) + tolerance::kNorm);
}

// Residual styles.

Case streams_case(Format format, bool learned_exit) {
  CaseBuilder b("streams " + name_of(format) + (learned_exit ? ", learned exit" : ", mean"), 71);
  constexpr std::uint32_t kStreams = 3, kWidth = 64;
  algorithm::HyperConnectionSpec spec;
  spec.streams = kStreams;
  spec.width = kWidth;
  spec.iterations = 5;
  const std::uint32_t mixes = (2 + kStreams) * kStreams;
  StreamsEnter enter{spec, b.embed(kWidth), b.tensor(kStreams * kWidth)};
  b.add(enter);
  Tensor streams = enter.out;
  // Twice, for only after the first are the streams not equal.
  for (int site = 0; site < 2; ++site) {
    StreamsRead read;
    read.spec = spec;
    read.fn = matrix(b, format, mixes, kStreams * kWidth);
    read.base = b.vector(mixes);
    read.scale = b.vector(3, 0.3f, 1.f);
    read.in = streams;
    read.out = b.tensor(kWidth);
    read.coefficients = b.tensor(mixes);
    b.add(read);
    const Tensor branch = b.tensor(kWidth);
    b.add(Add{read.out, b.embed(kWidth), branch, 0.5f, 0.9f});
    StreamsWrite write{spec, streams, read.coefficients, branch, b.tensor(kStreams * kWidth)};
    b.add(write);
    streams = write.out;
  }
  StreamsLeave leave;
  leave.spec = spec;
  if (learned_exit) {
    leave.fn = matrix(b, format, kStreams, kStreams * kWidth);
    leave.base = b.vector(kStreams);
    leave.scale = b.vector(1, 0.3f, 1.f);
  }
  leave.in = streams;
  leave.out = b.tensor(kWidth);
  b.add(leave);
  return b.finish(leave.out, 3.0 * tolerance::hyper_connection(kStreams * kWidth));
}

Case mix_residual_case(std::uint32_t blocks) {
  CaseBuilder b("mix of " + std::to_string(blocks) + " blocks", 72);
  MixResidual op;
  op.spec.block_size = 2;
  op.spec.width = 100;
  op.norm = b.vector(100, 0.2f, 1.f);
  op.projection = b.vector(100, 0.3f);
  for (std::uint32_t i = 0; i < blocks; ++i) op.blocks.push_back(b.embed(100));
  op.current = b.embed(100);
  op.out = b.tensor(100);
  b.add(op);
  return b.finish(op.out, tolerance::kNorm + tolerance::project(100) + tolerance::kElementwise);
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
  cases.push_back(project_groups_case(Format::kF32, 24, 21));
  cases.push_back(project_groups_case(Format::kBF16, 32, 32));
  cases.push_back(project_groups_case(Format::kQ8_0, 64, 120));
  cases.push_back(two_sided_case(0, 0.f));
  cases.push_back(two_sided_case(9, 8.f));
  return cases;
}

std::vector<Case> expert_family_cases() {
  std::vector<Case> cases = route_cases();
  for (Case& c : experts_cases()) cases.push_back(std::move(c));
  return cases;
}

std::vector<Case> attention_family_cases() {
  std::vector<Case> cases;
  for (const bool selection : {true, false}) {
    cases.push_back(attend_blocks_case(4, 3, selection));
    cases.push_back(latent_tokens_case(7, 0, selection));
    cases.push_back(latent_tokens_case(8, 4, selection));
  }
  cases.push_back(latent_case({}, "of odd widths"));
  cases.push_back(latent_case({.transposed = true}, "transposed"));
  cases.push_back(latent_case({.nope_dim = 16, .rope_dim = 0}, "without a shared part"));
  cases.push_back(latent_case({.heads = 20, .latent_rank = 48}, "of many heads"));
  for (const bool transposed : {false, true}) {
    cases.push_back(latent_case({.format = Format::kQ8_0,
                                 .heads = 4,
                                 .latent_rank = 64,
                                 .nope_dim = 32,
                                 .rope_dim = 16,
                                 .value_dim = 96,
                                 .transposed = transposed},
                                transposed ? "transposed" : ""));
  }
  cases.push_back(compressed_case(0, false, false));
  cases.push_back(compressed_case(2, false, false));
  cases.push_back(compressed_case(4, true, false));
  cases.push_back(compressed_case(4, true, true));
  return cases;
}

std::vector<std::pair<Case, Case>> range_and_list_cases() {
  std::vector<std::pair<Case, Case>> pairs;
  pairs.emplace_back(attend_all_case(false), attend_all_case(true));
  pairs.emplace_back(latent_all_case(false), latent_all_case(true));
  return pairs;
}

std::vector<Case> recurrent_family_cases() {
  return {delta_net_case(algorithm::KeyHeads::kGrouped, false, 4, 16),
          delta_net_case(algorithm::KeyHeads::kTiled, true, 3, 21),
          delta_net_case(algorithm::KeyHeads::kGrouped, false, 1, 16),
          delta_net_case(algorithm::KeyHeads::kTiled, true, 4, 32, true),
          kda_case(0.f, true, false),
          kda_case(-5.f, true, true),
          kda_case(-5.f, false, true)};
}

std::vector<Case> residual_family_cases() {
  return {streams_case(Format::kF32, true), streams_case(Format::kF16, false), mix_residual_case(0),
          mix_residual_case(3)};
}

}  // namespace lemma::backend::conformance
