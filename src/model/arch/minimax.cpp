// SPDX-License-Identifier: Apache-2.0
// MiniMax M2 and M3: RMS norms, GQA with split-half RoPE over the first part of each head, experts
// scored by a sigmoid with a bias for the choice. M2 norms the whole rows of q and k and has SiLU
// experts in every layer. M3 norms each head, has leading dense layers of attention and
// feed-forward, then layers whose KV groups choose blocks of keys, a shared expert beside the
// chosen ones, and the clamped SwiGLU of gpt-oss everywhere.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

namespace {

// The indexer's query heads and key: normed and turned like attention's own.
BlockIndexer block_indexer(const Reader& reader, std::uint32_t layer, const Gqa& attention) {
  const weights::Metadata& keys = reader.metadata();
  BlockIndexer indexer;
  indexer.spec.heads = attention.spec;
  indexer.spec.index_heads = keys.u32(reader.key("attention.indexer.head_count"));
  indexer.spec.index_dim = keys.u32(reader.key("attention.indexer.key_length"));
  indexer.spec.block_size = keys.u32(reader.key("attention.indexer.block_size"));
  indexer.spec.top_k = keys.u32(reader.key("attention.indexer.top_k"));
  indexer.spec.local_blocks = keys.u32_or(reader.key("attention.indexer.local_blocks"), 1);
  indexer.query = reader.linear(layer, "indexer.q_proj");
  indexer.key = reader.linear(layer, "indexer.k_proj");
  indexer.query_norm = reader.norm(layer, "indexer.q_norm", NormKind::kRms);
  indexer.key_norm = reader.norm(layer, "indexer.k_norm", NormKind::kRms);
  indexer.rope = attention.rope;
  indexer.rope->validate(indexer.spec.index_dim);
  return indexer;
}

}  // namespace

Plan minimax_m2(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  const algorithm::RoutingSpec routing = reader.routing(algorithm::RouteScore::kSigmoid, true);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.qk_norm = reader.qk_norm(i, NormKind::kRms, QkNorm::Extent::kWholeRow);
    attention.rope = rope;
    plan.layers.push_back(reader.pre_norm(i, NormKind::kRms, std::move(attention),
                                          reader.ffn(i, {Activation::kSilu}, routing)));
  }
  return plan;
}

Plan minimax_m3(const Reader& reader) {
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  const algorithm::RoutingSpec routing = reader.routing(algorithm::RouteScore::kSigmoid, true);
  constexpr algorithm::ActivationSpec kActivation{.kind = Activation::kSwigluOai, .limit = 7.f};
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.qk_norm = reader.qk_norm(i, NormKind::kRms, QkNorm::Extent::kPerHead);
    attention.rope = rope;
    // A file whose indexers were left out is refused with the first routed layer: full attention
    // is another function as soon as a text is longer than the chosen blocks.
    if (reader.routed(i)) attention.indexer = block_indexer(reader, i, attention);
    plan.layers.push_back(reader.pre_norm(i, NormKind::kRms, std::move(attention),
                                          reader.ffn(i, kActivation, routing)));
  }
  return plan;
}

}  // namespace lemma::model::arch
