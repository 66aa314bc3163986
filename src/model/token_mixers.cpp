// SPDX-License-Identifier: Apache-2.0
// The token mixers as operations. Each reads like its section in docs/contract.md.
#include "model/recorder.hpp"

namespace lemma::model {

using backend::Tensor;
using backend::WeightUse;

Tensor Recorder::mix(const Gqa& gqa, Input input) {
  const algorithm::GqaSpec& spec = gqa.spec;
  const auto [query, own] = keys_and_queries(gqa, input.normed);
  const LayerValues& values = gqa.source ? layers_[*gqa.source] : layers_[layer_] = own;
  backend::Attend attend{.spec = spec, .key = values.key, .value = values.value};
  attend.sinks = bind_vector(gqa.sinks, spec.query_heads);
  attend.query = query;
  if (gqa.indexer) attend.selection = select_blocks(gqa, input.normed);
  attend.out = tensor("heads", spec.query_heads * spec.value_dim);
  emit(attend);
  if (!spec.causal) program_.whole_prompts = true;

  Tensor heads = attend.out;
  if (gqa.gate) heads = gate(heads, project(gqa.gate, input.normed, heads.width, "gate"), "gated");
  return project(gqa.output, heads, plan_.width, "output");
}

// Projections, head norms, rotation; keys and values are stored unless another layer owns them.
std::pair<Tensor, Recorder::LayerValues> Recorder::keys_and_queries(const Gqa& gqa, Tensor x) {
  const algorithm::GqaSpec& spec = gqa.spec;
  const std::uint32_t key_width = spec.kv_heads * spec.head_dim;
  backend::Project op{.in = x, .outputs = {}, .clamp = gqa.clamp};
  op.outputs.push_back(output(gqa.query, spec.query_heads * spec.head_dim, x.width, "query"));
  if (gqa.key) op.outputs.push_back(output(gqa.key, key_width, x.width, "key"));
  if (gqa.value)
    op.outputs.push_back(output(gqa.value, spec.kv_heads * spec.value_dim, x.width, "value"));
  Tensor query = op.outputs[0].out;
  Tensor key = gqa.key ? op.outputs[1].out : Tensor{};
  Tensor value = gqa.value ? op.outputs.back().out : key;
  emit(std::move(op));

  if (gqa.qk_norm) {
    const bool whole = gqa.qk_norm->extent == QkNorm::Extent::kWholeRow;
    const bool own = gqa.qk_norm->extent == QkNorm::Extent::kPerHeadOwn;
    query = head_norm(gqa.qk_norm->query, whole ? query.width : spec.head_dim, own, query,
                      "query_norm");
    if (key)
      key = head_norm(gqa.qk_norm->key, whole ? key.width : spec.head_dim, own, key, "key_norm");
  }
  if (gqa.rope) {
    query = rotate(*gqa.rope, spec.head_dim, query, "query_rope");
    if (key) key = rotate(*gqa.rope, spec.head_dim, key, "key_rope");
  }
  if (!key) return {query, {}};
  if (gqa.value_norm)
    value = head_norm(*gqa.value_norm, spec.value_dim, false, value, "value_norm");
  const algorithm::Slots slots = spec.slots();
  LayerValues stored;
  stored.key = store(slots[0], key);
  stored.value = store(slots[1], value);
  return {query, stored};
}

Tensor Recorder::select_blocks(const Gqa& gqa, Tensor x) {
  const BlockIndexer& indexer = *gqa.indexer;
  const algorithm::MsaSpec& spec = indexer.spec;
  Tensor query = project(indexer.query, x, spec.index_heads * spec.index_dim, "index_query");
  Tensor key = project(indexer.key, x, spec.index_dim, "index_key");
  query = head_norm(indexer.query_norm, spec.index_dim, false, query, "index_query_norm");
  key = norm(indexer.key_norm, key, "index_key_norm");
  if (indexer.rope) {
    query = rotate(*indexer.rope, spec.index_dim, query, "index_query_rope");
    key = rotate(*indexer.rope, spec.index_dim, key, "index_key_rope");
  }
  backend::Select op{.rule = spec, .keys = store(spec.slots().back(), key), .query = query};
  op.out = tensor("selection", spec.index_heads * (1 + spec.list_limit()));
  emit(op);
  return op.out;
}

Tensor Recorder::mix(const Mla& mla, Input input) {
  const algorithm::MlaSpec& spec = mla.spec;
  const Tensor x = input.normed;
  Tensor query_latent = x;
  if (mla.query_down)
    query_latent =
        norm(mla.query_norm, project(mla.query_down, x, spec.q_rank, "query_down"), "query_latent");
  Tensor query = project(mla.query, query_latent, spec.heads * spec.query_dim(), "query");
  if (mla.rope) query = rotate(*mla.rope, spec.query_dim(), query, "query_rope");

  const Tensor latent =
      norm(mla.latent_norm, project(mla.latent, x, spec.latent_rank, "latent_down"), "latent");
  const algorithm::Slots slots = spec.slots();
  backend::AttendLatent attend{.spec = spec, .latent = store(slots[0], latent)};
  if (spec.rope_dim > 0) {
    Tensor key = project(mla.rope_key, x, spec.rope_dim, "rope_key");
    if (mla.rope) key = rotate(*mla.rope, spec.rope_dim, key, "rope_key_rope");
    attend.rope = store(slots[1], key);
  }
  const std::uint64_t heads = spec.heads, rank = spec.latent_rank;
  attend.key_up_transposed = mla.key_up_transposed;
  attend.key_up = mla.key_up_transposed
                      ? bind(mla.key_up, heads * rank, spec.nope_dim, WeightUse::kMatrix)
                      : bind(mla.key_up, heads * spec.nope_dim, rank, WeightUse::kTable);
  attend.value_up = bind(mla.value_up, heads * spec.value_dim, rank, WeightUse::kMatrix);
  attend.query = query;
  if (mla.indexer) layers_[layer_].selection = select_tokens(mla, x, query_latent);
  if (mla.selection_source) attend.selection = layers_[*mla.selection_source].selection;
  attend.out = tensor("heads", spec.heads * spec.value_dim);
  emit(attend);

  Tensor heads_out = attend.out;
  if (mla.gate) {
    const std::uint32_t width = mla.gate_per_head ? spec.heads : heads_out.width;
    heads_out = gate(heads_out, project(mla.gate, x, width, "gate"), "gated");
  }
  return project(mla.output, heads_out, plan_.width, "output");
}

Tensor Recorder::select_tokens(const Mla& mla, Tensor x, Tensor query_latent) {
  const TokenIndexer& indexer = *mla.indexer;
  const algorithm::DsaSpec spec = dsa_spec(mla);
  const std::uint32_t dim = indexer.spec.dim;
  Tensor query = project(indexer.query, query_latent, indexer.spec.heads * dim, "index_query");
  Tensor key = norm(indexer.key_norm, project(indexer.key, x, dim, "index_key"), "index_key_norm");
  if (indexer.rope) {
    query = rotate(*indexer.rope, dim, query, "index_query_rope");
    key = rotate(*indexer.rope, dim, key, "index_key_rope");
  }
  backend::Select op{.rule = spec, .query = query};
  op.weights = project(indexer.weights, x, indexer.spec.heads, "index_weights");
  const algorithm::Slots all = spec.slots();
  if (indexer.kpool == 0) {
    op.keys = store(all.back(), key);
  } else {
    const algorithm::Slots pools = spec.pools().slots();
    backend::Compress compress{.spec = spec.pools(), .rows = new_slot(pools[0])};
    compress.frontier = new_slot(pools[1]);
    compress.bias = bind(indexer.pool_positions, indexer.kpool, dim, WeightUse::kVector);
    compress.value = key;
    compress.gate = project(indexer.pool_gate, x, dim, "index_gate");
    op.keys = compress.rows;
    emit(compress);
  }
  op.out = tensor("selection", 1 + spec.list_limit());
  emit(op);
  return op.out;
}

Tensor Recorder::mix(const CompressedSparse& sparse, Input input) {
  const algorithm::CompressedSparseSpec& spec = sparse.spec;
  const Tensor x = input.normed;
  const Tensor query_latent = norm(
      sparse.query_norm, project(sparse.query_down, x, spec.q_rank, "query_down"), "query_latent");
  Tensor query = project(sparse.query, query_latent, spec.heads * spec.head_dim, "query");
  const Norm unweighted{.spec = {algorithm::NormKind::kRms, spec.norm_eps}};
  query = head_norm(unweighted, spec.head_dim, false, query, "query_norm");
  query = rotate(spec.rope, spec.head_dim, query, "query_rope");
  Tensor row = norm(sparse.row_norm, project(sparse.row, x, spec.head_dim, "row"), "row_norm");
  row = rotate(spec.rope, spec.head_dim, row, "row_rope");

  backend::AttendCompressed attend{.spec = spec, .rows = store(spec.slots()[0], row)};
  if (sparse.compressor)
    attend.entries = compress(sparse, *sparse.compressor, spec.entries(), "entry", x);
  if (sparse.index_compressor) {
    const std::uint32_t dim = spec.indexer.dim;
    backend::Select select{.rule = spec};
    select.keys = compress(sparse, *sparse.index_compressor, spec.index_entries(), "index", x);
    const Tensor index =
        project(sparse.index_query, query_latent, spec.indexer.heads * dim, "index_query");
    select.query = rotate(spec.rope, dim, index, "index_query_rope");
    select.weights = project(sparse.index_weights, x, spec.indexer.heads, "index_weights");
    select.out = tensor("selection", 1 + spec.indexer.top_k);
    emit(select);
    attend.selection = select.out;
  }
  attend.sinks = bind_vector(sparse.sinks, spec.heads);
  attend.query = query;
  attend.out = tensor("heads", spec.heads * spec.head_dim);
  emit(attend);

  const Tensor turned = rotate(spec.rope, spec.head_dim, attend.out, "heads_rope", true);
  const algorithm::GroupedLinearSpec grouped = spec.output();
  backend::ProjectGroups down{.spec = grouped, .in = turned};
  down.weight = bind(sparse.output_down, std::uint64_t{grouped.groups} * grouped.out, grouped.in,
                     WeightUse::kMatrix);
  down.out = tensor("output_down", grouped.groups * grouped.out);
  emit(down);
  return project(sparse.output, down.out, plan_.width, "output");
}

backend::SlotId Recorder::compress(const CompressedSparse& sparse,
                                   const CompressedSparse::Compressor& compressor,
                                   const algorithm::CompressorSpec& spec, const char* name,
                                   Tensor x) {
  const std::string prefix = std::string(name) + "_";
  // Rows; entries and their frontier; index entries and theirs.
  const algorithm::Slots slots = sparse.spec.slots();
  const bool index = sparse.index_compressor && &compressor == &*sparse.index_compressor;
  backend::Compress op{.spec = spec, .entry = sparse.spec, .rows = new_slot(slots[index ? 3 : 1])};
  op.frontier = new_slot(slots[index ? 4 : 2]);
  op.bias = bind(compressor.positions, spec.ratio, spec.channels(), WeightUse::kVector);
  op.norm = bind_vector(compressor.norm, spec.width);
  op.value = project(compressor.value, x, spec.channels(), (prefix + "value").c_str());
  op.gate = project(compressor.gate, x, spec.channels(), (prefix + "gate").c_str());
  const backend::SlotId rows = op.rows;
  emit(std::move(op));
  return rows;
}

Tensor Recorder::mix(const GatedDeltaNet& net, Input input) {
  const algorithm::GatedDeltaNetSpec& spec = net.spec;
  const Tensor x = input.normed;
  backend::Recur op{.spec = spec};
  const std::uint32_t parts[3] = {spec.key_heads * spec.key_dim, spec.key_heads * spec.key_dim,
                                  spec.value_heads * spec.value_dim};
  static constexpr const char* kNames[3] = {"query", "key", "value"};
  for (std::size_t i = 0; i < net.channels.size(); ++i)
    op.channels.push_back(net.channels.size() == 1
                              ? project(net.channels[0], x, spec.channels(), "channels")
                              : project(net.channels[i], x, parts[i], kNames[i]));
  for (std::size_t i = 0; i < net.convolutions.size(); ++i)
    op.convolutions.push_back(bind(net.convolutions[i],
                                   net.convolutions.size() == 1 ? spec.channels() : parts[i],
                                   spec.kernel, WeightUse::kVector));
  op.decay = project(net.alpha, x, spec.value_heads, "alpha");
  op.beta = project(net.beta, x, spec.value_heads, "beta");
  op.gate = project(net.gate, x, spec.value_heads * spec.value_dim, "gate");
  op.rate = bind_vector(net.rate, spec.value_heads);
  op.dt_bias = bind_vector(net.dt_bias, spec.value_heads);
  op.norm = bind_vector(net.norm, spec.value_dim);
  const algorithm::Slots slots = spec.slots();
  op.matrix = new_slot(slots[0]);
  if (slots.size() > 1) op.history = new_slot(slots[1]);
  op.out = tensor("heads", spec.value_heads * spec.value_dim);
  const Tensor out = op.out;
  emit(std::move(op));
  return project(net.output, out, plan_.width, "output");
}

Tensor Recorder::mix(const Kda& kda, Input input) {
  const algorithm::KdaSpec& spec = kda.spec;
  const Tensor x = input.normed;
  const std::uint32_t width = spec.heads * spec.dim;
  // A projection through a bottleneck, or straight.
  const auto through = [&](const Linear& down, const Linear& up, const char* name) {
    if (!down) return project(up, x, width, name);
    const auto rank =
        static_cast<std::uint32_t>(weights_.checkpoint().at(down.weight.tensor).rows());
    const std::string first = std::string(name) + "_down";
    return project(up, project(down, x, rank, first.c_str()), width, name);
  };
  backend::Recur op{.spec = spec};
  static constexpr const char* kNames[3] = {"query", "key", "value"};
  for (std::size_t i = 0; i < kda.channels.size(); ++i)
    op.channels.push_back(kda.channels.size() == 1
                              ? project(kda.channels[0], x, 3 * width, "channels")
                              : project(kda.channels[i], x, width, kNames[i]));
  for (const WeightRef& convolution : kda.convolutions)
    op.convolutions.push_back(bind(convolution, kda.convolutions.size() == 1 ? 3 * width : width,
                                   spec.kernel, WeightUse::kVector));
  op.decay = through(kda.forget_down, kda.forget, "forget");
  op.beta = project(kda.beta, x, spec.heads, "beta");
  op.gate = through(kda.gate_down, kda.gate, "gate");
  op.rate = bind_vector(kda.rate, spec.heads);
  op.dt_bias = bind_vector(kda.dt_bias, width);
  op.norm = bind_vector(kda.norm, spec.dim);
  const algorithm::Slots slots = spec.slots();
  op.matrix = new_slot(slots[0]);
  if (slots.size() > 1) op.history = new_slot(slots[1]);
  op.out = tensor("heads", width);
  const Tensor out = op.out;
  emit(std::move(op));
  return project(kda.output, out, plan_.width, "output");
}

}  // namespace lemma::model
