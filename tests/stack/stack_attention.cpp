// SPDX-License-Identifier: Apache-2.0
// Token mixers of the stack.
#include <cmath>

#include "stack_parts.hpp"

namespace lemma::test {

using algorithm::RopeLayout;
using algorithm::RopePlacement;
using algorithm::RopeSpec;

namespace {

constexpr std::uint32_t kHeads = 4, kKvHeads = 2, kDim = 16;  // of GQA and of both recurrences
constexpr std::uint32_t kRank = 32;                           // of latents and bottlenecks
constexpr std::uint32_t kTopTokens = 12, kPool = 4;
constexpr std::uint32_t kWindow = 8;

}  // namespace

model::Mixer StackParts::token_mixer(std::uint32_t layer) {
  switch (layer) {
    case 0:
      return sliding();
    case 1:
      return gated();
    case 2:
      return selecting();
    case 3:
      return sharing(2);
    case 4:
      return blocks();
    case 5:
      return compressed(4, true);
    case 6:
      return compressed(16, false);
    case 7:
      return delta_net();
    case 8:
      return kda();
    default:
      return pooling();
  }
}

model::Gqa StackParts::heads() {
  model::Gqa gqa;
  gqa.spec = {.query_heads = kHeads,
              .kv_heads = kKvHeads,
              .head_dim = kDim,
              .value_dim = kDim,
              .scale = 1.f / std::sqrt(static_cast<float>(kDim))};
  gqa.query = linear("query", kHeads * kDim, kStackWidth);
  gqa.key = linear("key", kKvHeads * kDim, kStackWidth);
  gqa.value = linear("value", kKvHeads * kDim, kStackWidth);
  gqa.output = linear("output", kStackWidth, kHeads * kDim);
  return gqa;
}

model::Gqa StackParts::sliding() {
  model::Gqa gqa = heads();
  gqa.spec.window = kWindow;
  gqa.spec.sinks = true;
  gqa.sinks = weights_.vector(named("sinks"), kHeads, -1.f, 1.f);
  gqa.rope = RopeSpec{.rotary_dim = kDim};
  return gqa;
}

model::Gqa StackParts::gated() {
  model::Gqa gqa = heads();
  gqa.qk_norm = model::QkNorm{.query = norm("query_norm", kDim), .key = norm("key_norm", kDim)};
  gqa.rope = RopeSpec{.rotary_dim = kDim / 2};
  gqa.gate = linear("gate", kHeads * kDim, kStackWidth);
  return gqa;
}

model::Gqa StackParts::blocks() {
  model::Gqa gqa = heads();
  gqa.rope = RopeSpec{.rotary_dim = kDim / 2};
  model::BlockIndexer indexer;
  indexer.spec = {
      .heads = gqa.spec, .index_heads = kKvHeads, .index_dim = kDim, .block_size = 4, .top_k = 3};
  indexer.query = linear("index_query", kKvHeads * kDim, kStackWidth);
  indexer.key = linear("index_key", kDim, kStackWidth);
  indexer.query_norm = norm("index_query_norm", kDim);
  indexer.key_norm = norm("index_key_norm", kDim);
  indexer.rope = gqa.rope;
  gqa.indexer = indexer;
  return gqa;
}

model::Mla StackParts::latent(std::uint32_t rope_dim) {
  model::Mla mla;
  mla.spec = {.heads = kHeads,
              .q_rank = kRank,
              .latent_rank = kRank,
              .nope_dim = kDim,
              .rope_dim = rope_dim,
              .value_dim = kDim,
              .scale = 1.f / std::sqrt(static_cast<float>(kDim + rope_dim)),
              .use_rope = rope_dim > 0};
  mla.query_down = linear("query_down", kRank, kStackWidth);
  mla.query_norm = norm("query_norm", kRank);
  mla.query = linear("query", std::uint64_t{kHeads} * mla.spec.query_dim(), kRank);
  mla.latent = linear("latent", kRank, kStackWidth);
  mla.latent_norm = norm("latent_norm", kRank);
  if (rope_dim > 0) {
    mla.rope_key = linear("rope_key", rope_dim, kStackWidth);
    mla.rope = RopeSpec{.rotary_dim = rope_dim,
                        .layout = RopeLayout::kInterleaved,
                        .placement = RopePlacement::kSuffix};
  }
  mla.key_up = weights_.matrix(named("key_up"), kHeads * kDim, kRank);
  mla.value_up = weights_.matrix(named("value_up"), kHeads * kDim, kRank);
  mla.output = linear("output", kStackWidth, kHeads * kDim);
  return mla;
}

model::TokenIndexer StackParts::indexer(const model::Mla& mla) {
  constexpr std::uint32_t kIndexHeads = 2;
  model::TokenIndexer indexer;
  indexer.spec = {
      .heads = kIndexHeads, .dim = kDim, .rope_dim = mla.spec.rope_dim, .top_k = kTopTokens};
  indexer.query = linear("index_query", kIndexHeads * kDim, kRank);
  indexer.key = linear("index_key", kDim, kStackWidth);
  indexer.weights = linear("index_weights", kIndexHeads, kStackWidth);
  indexer.key_norm = {.spec = {algorithm::NormKind::kLayer, 1e-6f},
                      .weight = weights_.vector(named("index_norm"), kDim, 0.75f, 1.25f),
                      .bias = weights_.vector(named("index_norm.bias"), kDim, -0.2f, 0.2f)};
  if (mla.spec.rope_dim > 0) indexer.rope = RopeSpec{.rotary_dim = mla.spec.rope_dim};
  return indexer;
}

model::Mla StackParts::selecting() {
  model::Mla mla = latent(kDim / 2);
  mla.indexer = indexer(mla);
  mla.selection_source = 2;
  return mla;
}

model::Mla StackParts::sharing(std::uint32_t source) {
  model::Mla mla = latent(kDim / 2);
  mla.selection_source = source;
  return mla;
}

model::Mla StackParts::pooling() {
  model::Mla mla = latent(0);
  mla.spec.output_gate = true;
  mla.gate = linear("gate", kHeads * kDim, kStackWidth);
  model::TokenIndexer pools = indexer(mla);
  pools.kpool = kPool;
  pools.always_select_tail = true;
  pools.pool_gate = linear("pool_gate", kDim, kStackWidth);
  pools.pool_positions = weights_.precise(named("pool_positions"), kPool, kDim);
  mla.indexer = pools;
  mla.selection_source = 9;
  return mla;
}

model::CompressedSparse::Compressor StackParts::compressor(const std::string& name,
                                                           std::uint32_t ratio, std::uint32_t width,
                                                           std::uint32_t channels) {
  return {.value = linear(name + ".value", channels, kStackWidth),
          .gate = linear(name + ".gate", channels, kStackWidth),
          .positions = weights_.precise(named(name + ".positions"), ratio, channels),
          .norm = weights_.vector(named(name + ".norm"), width, 0.75f, 1.25f)};
}

model::CompressedSparse StackParts::compressed(std::uint32_t ratio, bool chosen) {
  constexpr std::uint32_t kRowDim = 32, kGroups = 2;
  model::CompressedSparse sparse;
  algorithm::CompressedSparseSpec& spec = sparse.spec;
  spec = {.heads = kHeads,
          .head_dim = kRowDim,
          .q_rank = kRank,
          .window = kWindow,
          .scale = 1.f / std::sqrt(static_cast<float>(kRowDim)),
          .rope = {.rotary_dim = kDim,
                   .layout = RopeLayout::kInterleaved,
                   .placement = RopePlacement::kSuffix},
          .ratio = ratio,
          .overlap = chosen,
          .indexer = {.heads = 2, .dim = kRowDim, .rope_dim = kDim, .top_k = 3},
          .output_groups = kGroups,
          .output_rank = kRank};
  if (chosen) spec.selection = algorithm::EntrySelection::kIndexer;
  sparse.query_down = linear("query_down", kRank, kStackWidth);
  sparse.query_norm = norm("query_norm", kRank);
  sparse.query = linear("query", kHeads * kRowDim, kRank);
  sparse.row = linear("row", kRowDim, kStackWidth);
  sparse.row_norm = norm("row_norm", kRowDim);
  sparse.sinks = weights_.vector(named("sinks"), kHeads, -1.f, 1.f);
  const std::uint32_t channels = spec.entries().channels();
  sparse.compressor = compressor("entries", ratio, kRowDim, channels);
  if (chosen) {
    sparse.index_compressor = compressor("index", ratio, kRowDim, channels);
    sparse.index_query = linear("index_query", 2 * kRowDim, kRank);
    sparse.index_weights = linear("index_weights", 2, kStackWidth);
  }
  sparse.output_down = weights_.matrix(named("output_down"), kGroups * kRank, spec.output().in);
  sparse.output = linear("output", kStackWidth, kGroups * kRank);
  return sparse;
}

model::GatedDeltaNet StackParts::delta_net() {
  model::GatedDeltaNet net;
  net.spec = {
      .key_heads = 2, .value_heads = kHeads, .key_dim = kDim, .value_dim = kDim, .kernel = 4};
  const std::uint32_t channels = net.spec.channels();
  net.channels = {linear("channels", channels, kStackWidth)};
  net.convolutions = {weights_.precise(named("convolution"), channels, net.spec.kernel)};
  net.alpha = linear("alpha", kHeads, kStackWidth);
  net.beta = linear("beta", kHeads, kStackWidth);
  net.gate = linear("gate", kHeads * kDim, kStackWidth);
  net.output = linear("output", kStackWidth, kHeads * kDim);
  net.rate = weights_.vector(named("rate"), kHeads, -1.f, -0.05f);
  net.dt_bias = weights_.vector(named("dt_bias"), kHeads, -2.f, 0.f);
  net.norm = weights_.vector(named("head_norm"), kDim, 0.75f, 1.25f);
  return net;
}

model::Kda StackParts::kda() {
  model::Kda kda;
  kda.spec = {.heads = kHeads, .dim = kDim, .kernel = 4, .lower_bound = -5.f};
  const std::uint32_t width = kHeads * kDim;
  for (const char* part : {"q", "k", "v"}) {
    kda.channels.push_back(linear(part, width, kStackWidth));
    kda.convolutions.push_back(
        weights_.precise(named(std::string(part) + ".convolution"), width, kda.spec.kernel));
  }
  kda.forget_down = linear("forget_down", kRank, kStackWidth);
  kda.forget = linear("forget", width, kRank);
  kda.beta = linear("beta", kHeads, kStackWidth);
  kda.gate_down = linear("gate_down", kRank, kStackWidth);
  kda.gate = linear("gate", width, kRank);
  kda.output = linear("output", kStackWidth, width);
  kda.rate = weights_.vector(named("rate"), kHeads, 0.5f, 1.5f);
  kda.dt_bias = weights_.vector(named("dt_bias"), width, -3.f, 0.f);
  kda.norm = weights_.vector(named("head_norm"), kDim, 0.75f, 1.25f);
  return kda;
}

}  // namespace lemma::test
