// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.hpp"

#include "model/recorder.hpp"

namespace lemma::model {

using backend::Program;
using backend::Tensor;
using backend::WeightId;
using backend::WeightUse;

Program record(const Plan& plan, WeightBinder& weights) {
  return Recorder(plan, weights).record();
}

Program record(const Plan& plan, const weights::Checkpoint& checkpoint, backend::Backend& backend) {
  WeightBinder weights(checkpoint, backend);
  return record(plan, weights);
}

Program Recorder::record() {
  Residual residual{.stream = enter(embed())};
  for (layer_ = 0; layer_ < plan_.layers.size(); ++layer_) {
    prefix_ = "layers." + std::to_string(layer_) + ".";
    layer(plan_.layers[layer_], residual);
  }
  prefix_.clear();
  const auto* hyper = std::get_if<HyperConnections>(&plan_.residual);
  Tensor stream = leave(residual, hyper ? &hyper->leave : nullptr);
  if (plan_.final_norm) stream = norm(*plan_.final_norm, stream, "final_norm");
  program_.hidden = stream;
  if (!plan_.drafts.empty())
    program_.handed_on =
        plan_.drafts[0].reads == DraftBlock::Reads::kHidden ? stream : residual.stream;
  head(stream, plan_.head.output);
  return std::move(program_);
}

Tensor Recorder::embed() {
  const Embedding& embedding = plan_.embedding;
  backend::Embed op;
  op.table = bind(embedding.table, plan_.vocabulary, plan_.width, WeightUse::kTable);
  op.positions = bind(embedding.positions, embedding.position_rows, plan_.width, WeightUse::kTable);
  op.token_type = bind_vector(embedding.token_type, plan_.width);
  op.scale = embedding.scale;
  op.out = tensor("embedding", plan_.width);
  emit(op);
  const Tensor rows = embedding.norm ? norm(*embedding.norm, op.out, "embedding_norm") : op.out;
  if (embedding.per_layer) per_layer_rows(rows);
  return rows;
}

void Recorder::per_layer_rows(Tensor embedding) {
  const Embedding::PerLayer& rows = *plan_.embedding.per_layer;
  const auto layers = static_cast<std::uint32_t>(plan_.layers.size());
  const Tensor projected =
      project(rows.projection, embedding, layers * rows.width, "per_layer_projection");
  // The norm is indifferent to the projection's scale but for its epsilon.
  const Tensor scaled = add(projected, projected, "per_layer_scaled", 0.f, rows.projection_scale);
  const Tensor normed = head_norm(rows.norm, rows.width, false, scaled, "per_layer_norm");
  backend::Embed op;
  op.table =
      bind(rows.table, plan_.vocabulary, std::uint64_t{layers} * rows.width, WeightUse::kTable);
  op.scale = rows.table_scale;
  op.out = tensor("per_layer_table", layers * rows.width);
  emit(op);
  per_layer_ = add(normed, op.out, "per_layer_rows", 1.f, rows.sum_scale);
}

// "attention" and "ffn", numbered from the second of a kind on.
static std::string site_name(const Layer& layer, std::size_t index) {
  const auto attends = [&](std::size_t i) { return looks_along_tokens(layer.sites[i].mixer); };
  std::size_t same = 1;
  for (std::size_t i = 0; i < index; ++i) same += attends(i) == attends(index);
  const std::string name = attends(index) ? "attention" : "ffn";
  return same > 1 ? name + std::to_string(same) : name;
}

void Recorder::layer(const Layer& layer, Residual& residual) {
  const std::string layer_prefix = prefix_;
  const Tensor entered = residual.stream;
  Tensor shared_norm;
  for (std::size_t i = 0; i < layer.sites.size(); ++i) {
    const Site& site = layer.sites[i];
    prefix_ = layer_prefix + site_name(layer, i) + ".";
    const Tensor x = layer.side_by_side ? entered : read(site, residual);
    if (site.norm) shared_norm = norm(*site.norm, x, "norm");
    const Tensor normed = site.norm || site.shares_norm ? shared_norm : x;
    open_block(site, residual);
    const Tensor y = branch(site, {normed, x});
    const bool last = i + 1 == layer.sites.size();
    write(site, residual, y, last && !site.sum_norm ? layer.scale : 1.f);
  }
}

Tensor Recorder::branch(const Site& site, Input input) {
  const Tensor out = std::visit([&](const auto& mixer) { return mix(mixer, input); }, site.mixer);
  return site.branch_norm ? norm(*site.branch_norm, out, "branch_norm") : out;
}

// The residual styles. Plain: the stream is read as it is and the branch is added.

Tensor Recorder::enter(Tensor embedding) {
  const auto* hyper = std::get_if<HyperConnections>(&plan_.residual);
  if (!hyper) return embedding;
  backend::StreamsEnter op{.spec = hyper->spec, .in = embedding};
  op.out = tensor("streams", hyper->spec.streams * plan_.width);
  emit(op);
  return op.out;
}

Tensor Recorder::read(const Site& site, Residual& residual) {
  if (const auto* hyper = std::get_if<HyperConnections>(&plan_.residual)) {
    const std::uint64_t streams = hyper->spec.streams, rows = (2 + streams) * streams;
    backend::StreamsRead op{.spec = hyper->spec, .in = residual.stream};
    op.fn = bind(site.streams.fn, rows, streams * plan_.width, WeightUse::kMatrix);
    op.base = bind_vector(site.streams.base, rows);
    op.scale = bind_vector(site.streams.scale, 3);
    op.out = tensor("read", plan_.width);
    op.coefficients = tensor("coefficients", static_cast<std::uint32_t>(rows));
    residual.coefficients = op.coefficients;
    emit(op);
    return op.out;
  }
  const auto* blocks = std::get_if<AttentionResidual>(&plan_.residual);
  if (!blocks || residual.blocks.empty()) return residual.stream;
  backend::MixResidual op{.spec = blocks->spec};
  op.norm = bind_vector(site.block_mix.norm, plan_.width);
  op.projection = bind_vector(site.block_mix.projection, plan_.width);
  op.blocks = residual.blocks;
  op.current = residual.stream;
  op.out = tensor("read", plan_.width);
  const Tensor out = op.out;
  emit(std::move(op));
  return out;
}

// At the start of a block the layer's input is laid aside and the residual starts anew.
void Recorder::open_block(const Site& site, Residual& residual) {
  const auto* blocks = std::get_if<AttentionResidual>(&plan_.residual);
  if (!blocks || !looks_along_tokens(site.mixer)) return;
  if (!blocks->spec.opens_block(static_cast<std::uint32_t>(layer_))) return;
  residual.blocks.push_back(residual.stream);
  residual.stream = {};
}

void Recorder::write(const Site& site, Residual& residual, Tensor branch, float scale) {
  if (const auto* hyper = std::get_if<HyperConnections>(&plan_.residual)) {
    backend::StreamsWrite op{.spec = hyper->spec, .in = residual.stream};
    op.coefficients = residual.coefficients;
    op.branch = branch;
    op.out = tensor("stream", residual.stream.width);
    emit(op);
    residual.stream = op.out;
    return;
  }
  if (!residual.stream) {
    residual.stream = branch;
    return;
  }
  residual.stream = add(residual.stream, branch, "stream", site.scale, scale);
  if (site.sum_norm) residual.stream = norm(*site.sum_norm, residual.stream, "sum_norm");
}

Tensor Recorder::leave(const Residual& residual, const StreamWeights* weights) {
  if (const auto* hyper = std::get_if<HyperConnections>(&plan_.residual)) {
    const std::uint64_t streams = hyper->spec.streams;
    backend::StreamsLeave op{.spec = hyper->spec, .in = residual.stream};
    op.fn = bind(weights->fn, streams, streams * plan_.width, WeightUse::kMatrix);
    op.base = bind_vector(weights->base, streams);
    op.scale = bind_vector(weights->scale, 1);
    op.out = tensor("left", plan_.width);
    emit(op);
    return op.out;
  }
  const auto* blocks = std::get_if<AttentionResidual>(&plan_.residual);
  if (!blocks) return residual.stream;
  backend::MixResidual op{.spec = blocks->spec};
  op.norm = bind_vector(blocks->leave.norm, plan_.width);
  op.projection = bind_vector(blocks->leave.projection, plan_.width);
  op.blocks = residual.blocks;
  op.current = residual.stream;
  op.out = tensor("left", plan_.width);
  const Tensor out = op.out;
  emit(std::move(op));
  return out;
}

void Recorder::head(Tensor in, const Linear& output) {
  if (!output) return;
  backend::Head op;
  op.weight = bind(output.weight, plan_.vocabulary, plan_.width, WeightUse::kMatrix);
  op.bias = bind_vector(output.bias, plan_.vocabulary);
  op.scale = plan_.head.scale;
  op.softcap = plan_.head.softcap;
  op.in = in;
  program_.vocabulary = plan_.vocabulary;
  emit(op);
}

// Operations with the usual shapes.

Tensor Recorder::norm(const Norm& norm, Tensor in, const char* site) {
  return head_norm(norm, in.width, false, in, site);
}

Tensor Recorder::head_norm(const Norm& norm, std::uint32_t head_dim, bool own_weights, Tensor in,
                           const char* site) {
  const std::uint32_t rows = own_weights ? in.width / head_dim : 1;
  backend::Norm op{.spec = norm.spec};
  op.weight = bind(norm.weight, rows, head_dim, WeightUse::kVector);
  op.bias = bind(norm.bias, rows, head_dim, WeightUse::kVector);
  op.group = head_dim == in.width ? 0 : head_dim;
  op.weight_per_group = own_weights;
  op.in = in;
  op.out = tensor(site, in.width);
  emit(op);
  return op.out;
}

Tensor Recorder::rotate(const algorithm::RopeSpec& rope, std::uint32_t head_dim, Tensor in,
                        const char* site, bool inverse) {
  backend::Rotate op{.rope = program_.rope(rope), .head_dim = head_dim, .inverse = inverse};
  op.in = in;
  op.out = tensor(site, in.width);
  emit(op);
  return op.out;
}

backend::Project::Output Recorder::output(const Linear& linear, std::uint32_t rows,
                                          std::uint32_t cols, const char* site) {
  return {.weight = bind(linear.weight, rows, cols, WeightUse::kMatrix),
          .bias = bind_vector(linear.bias, rows),
          .out = tensor(site, rows)};
}

Tensor Recorder::project(const Linear& linear, Tensor in, std::uint32_t width, const char* site) {
  backend::Project op{.in = in, .outputs = {output(linear, width, in.width, site)}};
  const Tensor out = op.outputs[0].out;
  emit(std::move(op));
  return out;
}

Tensor Recorder::gate(Tensor in, Tensor gate, const char* site) {
  backend::Gate op{.in = in, .gate = gate, .out = tensor(site, in.width)};
  emit(op);
  return op.out;
}

Tensor Recorder::add(Tensor a, Tensor b, const char* site, float b_scale, float out_scale) {
  backend::Add op{.a = a, .b = b, .out = tensor(site, a.width)};
  op.b_scale = b_scale;
  op.out_scale = out_scale;
  emit(op);
  return op.out;
}

backend::SlotId Recorder::new_slot(const algorithm::Slot& slot) {
  program_.slots.push_back(slot);
  return static_cast<backend::SlotId>(program_.slots.size() - 1);
}

backend::SlotId Recorder::store(const algorithm::Slot& slot, Tensor in) {
  const backend::SlotId id = new_slot(slot);
  emit(backend::Store{.slot = id, .in = in});
  return id;
}

WeightId Recorder::bind(const WeightRef& ref, std::uint64_t rows, std::uint64_t cols,
                        WeightUse use) {
  return weights_.bind(ref, rows, cols, use);
}

WeightId Recorder::bind_vector(const WeightRef& ref, std::uint64_t width) {
  return bind(ref, 1, width, WeightUse::kVector);
}

Tensor Recorder::tensor(const std::string& site, std::uint32_t width) {
  return program_.tensor(prefix_ + site, width);
}

void Recorder::emit(backend::Operation operation) {
  program_.operations.push_back(std::move(operation));
}

}  // namespace lemma::model
