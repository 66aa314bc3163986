// SPDX-License-Identifier: Apache-2.0
// DeepSeek V4. The residual is several streams (hyper-connections). Attention reads one row per
// token, key and value of all heads at once: those of a window as they are, and in most layers
// entries that stand for 4 tokens each (an indexer chooses among them) or for 128 (all of them).
// Layers that compress turn with another base and YaRN, without YaRN's magnitude. Experts are
// scored by sqrt(softplus); in the first layers a table by token id chooses them. A draft block has
// a window only, and reads each of the model's streams for itself.
#include <cmath>

#include "base/raise.hpp"
#include "model/arch/parts.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::Activation;
using algorithm::CompressedSparseSpec;
using algorithm::NormKind;
using algorithm::RopeLayout;
using algorithm::RouteScore;
using base::raise;

/// The one ratio whose entries overlap and are chosen by an indexer.
constexpr std::uint32_t kFineRatio = 4;

// What all layers share, with the rotation of those that do not compress.
CompressedSparseSpec base_spec(const Reader& reader) {
  CompressedSparseSpec spec;
  spec.heads = reader.heads(0);
  spec.head_dim = reader.head_dim();
  if (reader.value_dim() != spec.head_dim || reader.kv_heads(0) != 1)
    raise(ErrorKind::kBadFile,
          "keys '{}', '{}' and '{}': expected one KV head with values as wide as keys, found {} "
          "of {} and {}",
          reader.key("attention.head_count_kv"), reader.key("attention.key_length"),
          reader.key("attention.value_length"), reader.kv_heads(0), spec.head_dim,
          reader.value_dim());
  spec.q_rank = positive(reader, "attention.q_lora_rank");
  spec.window = reader.window();
  spec.scale = 1.f / std::sqrt(static_cast<float>(spec.head_dim));
  spec.norm_eps = reader.epsilon(NormKind::kRms);
  spec.output_groups = positive(reader, "attention.output_group_count");
  spec.output_rank = positive(reader, "attention.output_lora_rank");
  spec.indexer = indexer_spec(reader);
  return spec;
}

algorithm::RopeSpec compressed_rope(const Reader& reader) {
  algorithm::RopeSpec rope = reader.rope(RopeLayout::kInterleaved);
  if (const std::string key = reader.key("rope.scaling.attn_factor");
      reader.scale("rope.scaling.attn_factor", 1.f) != 1.f)
    raise(ErrorKind::kUnsupported, "key '{}': expected 1 or none", key);
  rope.placement = algorithm::RopePlacement::kSuffix;
  rope.attention_factor = 1.f;
  rope.theta = reader.metadata().f32(reader.key("attention.compress_rope_freq_base"));
  return rope;
}

CompressedSparse::Compressor compressor(const Reader& reader, std::uint32_t layer,
                                        const std::string& stem) {
  return {.value = reader.linear(layer, stem + "_kv"),
          .gate = reader.linear(layer, stem + "_gate"),
          .positions = {Reader::block(layer, stem + "_ape.weight")},
          .norm = {Reader::block(layer, stem + "_norm.weight")}};
}

CompressedSparse attention(const Reader& reader, std::uint32_t layer,
                           const CompressedSparseSpec& base, const algorithm::RopeSpec& rope,
                           std::uint32_t ratio) {
  CompressedSparse sparse{.spec = base};
  CompressedSparseSpec& spec = sparse.spec;
  sparse.query_down = reader.linear(layer, "attn_q_a");
  sparse.query_norm = reader.norm(layer, "attn_q_a_norm", NormKind::kRms);
  sparse.query = reader.linear(layer, "attn_q_b");
  sparse.row = reader.linear(layer, "attn_kv");
  sparse.row_norm = reader.norm(layer, "attn_kv_a_norm", NormKind::kRms);
  sparse.sinks.tensor = Reader::block(layer, "attn_sinks.weight");
  sparse.output_down.tensor = Reader::block(layer, "attn_output_a.weight");
  sparse.output = reader.linear(layer, "attn_output_b");
  spec.ratio = ratio;
  spec.rope = rope;
  if (ratio == 0) {
    spec.rope = unscaled(rope, reader.metadata().f32_or(reader.key("rope.freq_base"), 10000.f));
    return sparse;
  }
  sparse.compressor = compressor(reader, layer, "attn_compressor");
  if (ratio != kFineRatio) return sparse;
  spec.overlap = true;
  spec.selection = algorithm::EntrySelection::kIndexer;
  sparse.index_compressor = compressor(reader, layer, "indexer_compressor");
  sparse.index_query = reader.linear(layer, "indexer.attn_q_b");
  sparse.index_weights = reader.linear(layer, "indexer.proj");
  return sparse;
}

Moe experts(const Reader& reader, std::uint32_t layer, float limit, float shared_limit,
            const algorithm::RoutingSpec& routing, bool hashed) {
  Moe moe = reader.moe(layer, {.kind = Activation::kSilu, .limit = limit}, routing);
  if (moe.shared) moe.shared->spec.activation.limit = shared_limit;
  if (!hashed) return moe;
  moe.routing.hashed = true;
  moe.hash_table.tensor = Reader::block(layer, "ffn_gate_tid2eid.weight");
  // A correction is for the choice alone, which the table makes.
  if (moe.correction) reader.leave_out(moe.correction.tensor);
  moe.routing.correction = false;
  moe.correction = {};
  return moe;
}

StreamWeights streams(const std::string& stem) {
  return {.fn = {stem + "_fn.weight"},
          .base = {stem + "_base.weight"},
          .scale = {stem + "_scale.weight"}};
}

HyperConnections hyper_connections(const Reader& reader) {
  HyperConnections hyper;
  hyper.spec.streams = positive(reader, "hyper_connection.count");
  hyper.spec.width = reader.width();
  hyper.spec.iterations = positive(reader, "hyper_connection.sinkhorn_iterations");
  hyper.spec.eps = reader.metadata().f32(reader.key("hyper_connection.epsilon"));
  hyper.spec.norm_eps = reader.epsilon(NormKind::kRms);
  hyper.spec.validate();
  hyper.leave = streams("output_hc");
  return hyper;
}

}  // namespace

Plan deepseek4(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  plan.residual = hyper_connections(reader);
  const CompressedSparseSpec base = base_spec(reader);
  const algorithm::RopeSpec rope = compressed_rope(reader);
  const auto ratios =
      reader.metadata().u32_per_layer(reader.key("attention.compress_ratios"), reader.layers());
  const algorithm::RoutingSpec routing = reader.routing(RouteScore::kSqrtSoftplus, true);
  const std::vector<float> limit = limits(reader, "swiglu_clamp_exp", 0.f);
  // The published code clamps the shared expert like the others unless a file says otherwise.
  const bool own = reader.metadata().has(reader.key("swiglu_clamp_shexp"));
  const std::vector<float> shared = own ? limits(reader, "swiglu_clamp_shexp", 0.f) : limit;
  const std::uint32_t hashed = reader.metadata().u32_or(reader.key("hash_layer_count"), 0);
  const auto layer = [&](std::uint32_t i) {
    const std::uint32_t ratio = i < reader.layers() ? ratios[i] : 0;
    Layer made = reader.pre_norm(i, NormKind::kRms, attention(reader, i, base, rope, ratio),
                                 experts(reader, i, limit[i], shared[i], routing, i < hashed));
    made.sites[0].streams = streams(Reader::block(i, "hc_attn"));
    made.sites[1].streams = streams(Reader::block(i, "hc_ffn"));
    return made;
  };
  for (std::uint32_t i = 0; i < reader.layers(); ++i) plan.layers.push_back(layer(i));
  reader.add_drafts(plan, layer);
  return plan;
}

}  // namespace lemma::model::arch
