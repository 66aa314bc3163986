// SPDX-License-Identifier: Apache-2.0
// DeepSeek V3.2 and GLM 5: DeepSeek V3's layers, whose latent attention reads only the tokens that
// an indexer chooses. The indexer's heads turn at their front: V3.2 pairs halves there, though its
// attention pairs neighbours; GLM 5 pairs neighbours in both. From GLM 5.2 on most layers have no
// indexer and take the list of the nearest layer before them that has one. Behind the last layer a
// block drafts.
#include <algorithm>
#include <functional>
#include <optional>

#include "base/raise.hpp"
#include "model/arch/parts.hpp"

namespace lemma::model::arch {
namespace {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;
using algorithm::RouteScore;

// The layer norm of index keys has its own eps, which most files do not carry.
constexpr float kIndexKeyEps = 1e-6f;

TokenIndexer indexer(const Reader& reader, std::uint32_t layer, algorithm::RopeSpec rope,
                     RopeLayout layout) {
  TokenIndexer indexer;
  indexer.spec = indexer_spec(reader);
  indexer.query = reader.linear(layer, "indexer.attn_q_b");
  indexer.key = reader.linear(layer, "indexer.attn_k");
  indexer.weights = reader.linear(layer, "indexer.proj");
  const std::string stem = Reader::block(layer, "indexer.k_norm");
  indexer.key_norm.spec = {NormKind::kLayer,
                           reader.scale("attention.layer_norm_epsilon", kIndexKeyEps)};
  indexer.key_norm.weight.tensor = stem + ".weight";
  indexer.key_norm.bias.tensor = stem + ".bias";
  rope.layout = layout;
  rope.placement = algorithm::RopePlacement::kPrefix;
  indexer.rope = rope;
  return indexer;
}

// Which layers and draft blocks run an indexer: as the file says, else those that have its tensors.
std::vector<bool> choosing_layers(const Reader& reader) {
  const std::string key = reader.key("attention.indexer.types");
  std::vector<bool> choosing;
  for (std::uint32_t i = 0; i < reader.layers() + reader.drafts(); ++i)
    choosing.push_back(reader.has_tensor(Reader::block(i, "indexer.attn_k.weight")));
  if (reader.metadata().has(key)) {
    const auto types = reader.metadata().u32_per_layer(key, reader.layers());
    for (std::uint32_t i = 0; i < reader.layers(); ++i) choosing[i] = types[i] != 0;
  }
  if (!choosing[0])
    base::raise(ErrorKind::kBadFile,
                "key '{}' and the tensors 'indexer.*': the first layer has no indexer, and there "
                "is no layer before it to take tokens from",
                key);
  return choosing;
}

Plan sparse(const Reader& reader, RopeLayout index_layout) {
  Plan plan = reader.base_plan(NormKind::kRms);
  const LatentRope rope = latent_rope(reader, false);
  const algorithm::RoutingSpec routing = reader.routing(RouteScore::kSigmoid, false);
  const std::vector<bool> choosing = choosing_layers(reader);
  std::uint32_t chooser = 0;
  const auto layer = [&](std::uint32_t i) {
    Mla attention = latent_attention(reader, i);
    turn(attention, rope);
    if (choosing[i]) {
      attention.indexer = indexer(reader, i, rope.rope, index_layout);
      chooser = i;
    }
    attention.selection_source = chooser;
    return reader.pre_norm(i, NormKind::kRms, std::move(attention),
                           reader.ffn(i, {.kind = Activation::kSilu}, routing));
  };
  for (std::uint32_t i = 0; i < reader.layers(); ++i) plan.layers.push_back(layer(i));
  // A draft block chooses tokens by its own indexer, as it was trained; llama.cpp lets it attend to
  // all. One that would take the list of a layer cannot run by itself; it is left out.
  if (std::all_of(choosing.begin() + reader.layers(), choosing.end(), std::identity()))
    reader.add_drafts(plan, layer);
  return plan;
}

}  // namespace

Plan deepseek32(const Reader& reader) {
  return sparse(reader, RopeLayout::kSplitHalf);
}

Plan glm_dsa(const Reader& reader) {
  return sparse(reader, RopeLayout::kInterleaved);
}

}  // namespace lemma::model::arch
