// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.hpp"

#include <string>
#include <utility>

namespace lemma::model {
namespace {

using backend::kNoWeight;
using backend::Program;
using backend::Tensor;
using backend::WeightId;
using backend::WeightUse;

class Recorder {
 public:
  Recorder(const Plan& plan, const weights::Checkpoint& checkpoint, backend::Backend& backend)
      : plan_(plan), checkpoint_(checkpoint), backend_(backend) {}

  Program record() {
    Tensor stream = embed();
    for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
      prefix_ = "layers." + std::to_string(i) + ".";
      stream = layer(plan_.layers[i], stream);
    }
    prefix_.clear();
    if (plan_.final_norm) stream = norm(*plan_.final_norm, stream, "final_norm");
    program_.hidden = stream;
    head(stream);
    return std::move(program_);
  }

 private:
  Tensor embed() {
    const Embedding& embedding = plan_.embedding;
    backend::Embed op;
    op.table = bind(embedding.table, plan_.vocabulary, plan_.width, WeightUse::kTable);
    op.positions =
        bind(embedding.positions, embedding.position_rows, plan_.width, WeightUse::kTable);
    op.scale = embedding.scale;
    op.out = tensor("embedding", plan_.width);
    emit(op);
    return embedding.norm ? norm(*embedding.norm, op.out, "embedding_norm") : op.out;
  }

  Tensor layer(const Layer& layer, Tensor stream) {
    const std::string layer_prefix = prefix_;
    const Tensor entered = stream;
    Tensor normed;
    for (std::size_t i = 0; i < layer.sites.size(); ++i) {
      const Site& site = layer.sites[i];
      const bool last = i + 1 == layer.sites.size();
      prefix_ = layer_prefix + site_name(site, i, layer) + ".";

      const Tensor read = layer.side_by_side ? entered : stream;
      if (site.norm) normed = norm(*site.norm, read, "norm");
      Tensor branch = std::visit(
          [&](const auto& mixer) {
            return mix(mixer, site.norm || site.shares_norm ? normed : read);
          },
          site.mixer);
      if (site.branch_norm) branch = norm(*site.branch_norm, branch, "branch_norm");

      backend::Add add{.a = stream, .b = branch, .out = tensor("stream", plan_.width)};
      add.b_scale = site.scale;
      if (last && !site.sum_norm) add.out_scale = layer.scale;
      emit(add);
      stream = site.sum_norm ? norm(*site.sum_norm, add.out, "sum_norm") : add.out;
    }
    return stream;
  }

  // "attention" and "ffn", numbered from the second of a kind on.
  static std::string site_name(const Site& site, std::size_t index, const Layer& layer) {
    std::size_t same = 0;
    for (std::size_t i = 0; i < index; ++i)
      same += layer.sites[i].mixer.index() == site.mixer.index();
    const std::string name = std::holds_alternative<Gqa>(site.mixer) ? "attention" : "ffn";
    return same ? name + std::to_string(same + 1) : name;
  }

  Tensor mix(const Gqa& gqa, Tensor x) {
    const algorithm::GqaSpec& spec = gqa.spec;
    const std::uint32_t query_width = spec.query_heads * spec.head_dim;
    const std::uint32_t key_width = spec.kv_heads * spec.head_dim;
    const std::uint32_t value_width = spec.kv_heads * spec.value_dim;

    backend::Project project{.in = x, .outputs = {}, .clamp = gqa.clamp};
    project.outputs = {output(gqa.query, query_width, x.width, "query"),
                       output(gqa.key, key_width, x.width, "key"),
                       output(gqa.value, value_width, x.width, "value")};
    Tensor query = project.outputs[0].out, key = project.outputs[1].out;
    const Tensor value = project.outputs[2].out;
    emit(std::move(project));

    if (gqa.qk_norm) {
      query =
          head_norm(gqa.qk_norm->query, gqa.qk_norm->extent, spec.head_dim, query, "query_norm");
      key = head_norm(gqa.qk_norm->key, gqa.qk_norm->extent, spec.head_dim, key, "key_norm");
    }
    if (gqa.rope) {
      query = rotate(*gqa.rope, spec.head_dim, query, "query_rope");
      key = rotate(*gqa.rope, spec.head_dim, key, "key_rope");
    }

    const auto slot = static_cast<backend::SlotId>(program_.slots.size());
    for (const algorithm::Slot& needed : spec.slots()) program_.slots.push_back(needed);
    emit(backend::Store{.slot = slot, .in = key});
    emit(backend::Store{.slot = slot + 1, .in = value});

    backend::Attend attend{.spec = spec, .key = slot, .value = slot + 1};
    attend.sinks = bind(gqa.sinks, 1, spec.query_heads, WeightUse::kVector);
    attend.query = query;
    attend.out = tensor("heads", spec.query_heads * spec.value_dim);
    emit(attend);
    return project_one(gqa.output, attend.out, plan_.width, "output");
  }

  Tensor mix(const DenseMlp& mlp, Tensor x) {
    const algorithm::MlpSpec& spec = mlp.spec;
    backend::Mlp op;
    op.spec = spec;
    op.gate = bind(mlp.gate.weight, spec.hidden, spec.width, WeightUse::kMatrix);
    op.up = bind(mlp.up.weight, spec.hidden, spec.width, WeightUse::kMatrix);
    op.down = bind(mlp.down.weight, spec.width, spec.hidden, WeightUse::kMatrix);
    op.gate_bias = bind(mlp.gate.bias, 1, spec.hidden, WeightUse::kVector);
    op.up_bias = bind(mlp.up.bias, 1, spec.hidden, WeightUse::kVector);
    op.down_bias = bind(mlp.down.bias, 1, spec.width, WeightUse::kVector);
    op.in = x;
    op.out = tensor("output", spec.width);
    emit(op);
    return op.out;
  }

  Tensor norm(const Norm& norm, Tensor in, const char* site) {
    return norm_groups(norm, in, 0, false, site);
  }

  Tensor head_norm(const Norm& norm, QkNorm::Extent extent, std::uint32_t head_dim, Tensor in,
                   const char* site) {
    const bool whole = extent == QkNorm::Extent::kWholeRow;
    return norm_groups(norm, in, whole ? 0 : head_dim, extent == QkNorm::Extent::kPerHeadOwn, site);
  }

  Tensor norm_groups(const Norm& norm, Tensor in, std::uint32_t group, bool weight_per_group,
                     const char* site) {
    const std::uint32_t width = group ? group : in.width;
    const std::uint32_t rows = weight_per_group ? in.width / width : 1;
    backend::Norm op{.spec = norm.spec};
    op.weight = bind(norm.weight, rows, width, WeightUse::kVector);
    op.bias = bind(norm.bias, rows, width, WeightUse::kVector);
    op.group = group;
    op.weight_per_group = weight_per_group;
    op.in = in;
    op.out = tensor(site, in.width);
    emit(op);
    return op.out;
  }

  Tensor rotate(const algorithm::RopeSpec& rope, std::uint32_t head_dim, Tensor in,
                const char* site) {
    backend::Rotate op{.rope = program_.rope(rope), .head_dim = head_dim, .in = in};
    op.out = tensor(site, in.width);
    emit(op);
    return op.out;
  }

  backend::Project::Output output(const Linear& linear, std::uint32_t rows, std::uint32_t cols,
                                  const char* site) {
    return {.weight = bind(linear.weight, rows, cols, WeightUse::kMatrix),
            .bias = bind_vector(linear.bias, rows),
            .out = tensor(site, rows)};
  }

  Tensor project_one(const Linear& linear, Tensor in, std::uint32_t width, const char* site) {
    backend::Project op{.in = in, .outputs = {output(linear, width, in.width, site)}};
    const Tensor out = op.outputs[0].out;
    emit(std::move(op));
    return out;
  }

  void head(Tensor in) {
    if (!plan_.head.output) return;
    backend::Head op;
    op.weight = bind(plan_.head.output.weight, plan_.vocabulary, plan_.width, WeightUse::kMatrix);
    op.bias = bind_vector(plan_.head.output.bias, plan_.vocabulary);
    op.scale = plan_.head.scale;
    op.softcap = plan_.head.softcap;
    op.in = in;
    program_.vocabulary = plan_.vocabulary;
    emit(op);
  }

  WeightId bind(const WeightRef& ref, std::uint64_t rows, std::uint64_t cols, WeightUse use) {
    if (!ref) return kNoWeight;
    return backend_.add(weights::bind(checkpoint_, ref, rows, cols), use);
  }
  WeightId bind_vector(const WeightRef& ref, std::uint64_t width) {
    return bind(ref, 1, width, WeightUse::kVector);
  }
  Tensor tensor(const char* site, std::uint32_t width) {
    return program_.tensor(prefix_ + site, width);
  }
  void emit(backend::Operation operation) { program_.operations.push_back(std::move(operation)); }

  const Plan& plan_;
  const weights::Checkpoint& checkpoint_;
  backend::Backend& backend_;
  Program program_;
  std::string prefix_;  ///< of the sites that are being recorded
};

}  // namespace

Program record(const Plan& plan, const weights::Checkpoint& checkpoint, backend::Backend& backend) {
  return Recorder(plan, checkpoint, backend).record();
}

}  // namespace lemma::model
