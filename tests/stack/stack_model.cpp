// SPDX-License-Identifier: Apache-2.0
#include "stack_model.hpp"

#include <string>
#include <utility>

#include "algorithm/sampling.hpp"
#include "stack_parts.hpp"

namespace lemma::test {

StackModel make_stack(Wiring wiring, weights::Format matrices) {
  auto weights = std::make_unique<SeededWeights>(matrices);
  StackParts parts(*weights);
  model::Plan plan;
  plan.architecture = "stack";
  plan.width = kStackWidth;
  plan.vocabulary = kStackVocabulary;
  plan.context = kStackContext;
  plan.embedding.table = weights->matrix("embedding", kStackVocabulary, kStackWidth, 8.f);
  plan.residual = parts.residual(wiring);
  const std::uint32_t shift = 3 * static_cast<std::uint32_t>(wiring);
  for (std::uint32_t i = 0; i < kStackLayers; ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    model::Layer layer;
    parts.enter(prefix + "attention.");
    layer.sites.push_back(parts.site(parts.token_mixer(i), wiring));
    parts.enter(prefix + "ffn.");
    layer.sites.push_back(parts.site(parts.channel_mixer((i + shift) % kStackLayers), wiring));
    plan.layers.push_back(std::move(layer));
  }
  parts.enter("");
  plan.final_norm = parts.norm("final_norm", kStackWidth);
  plan.head.output.weight = weights->matrix("head", kStackVocabulary, kStackWidth);
  return {std::move(weights), std::move(plan)};
}

void scale_scores(model::Plan& plan, float factor) {
  for (model::Layer& layer : plan.layers) {
    model::Mixer& mixer = layer.sites[0].mixer;
    if (auto* gqa = std::get_if<model::Gqa>(&mixer)) {
      gqa->spec.scale *= factor;
      if (gqa->indexer) gqa->indexer->spec.heads.scale *= factor;
    }
    if (auto* mla = std::get_if<model::Mla>(&mixer)) mla->spec.scale *= factor;
    if (auto* sparse = std::get_if<model::CompressedSparse>(&mixer)) sparse->spec.scale *= factor;
  }
}

std::vector<std::uint32_t> stack_boundaries() {
  return {1,  // the shortest
          2,
          3,
          4,
          5,  // kernel 4; ratio, block and pool of 4
          7,
          8,
          9,  // window 8; two entries of 4
          11,
          12,
          13,  // top 12 tokens; three blocks of 4; three entries
          15,
          16,
          17,  // ratio 16; 2 windows + 1
          31,
          32,
          33,  // two entries of 16
          63,
          64,
          65,  // cells of chunked recurrences
          135,
          136,
          137,  // what the window's ring keeps: 8 + slack of 128
          kStackContext - 1,
          kStackContext};
}

std::vector<std::int32_t> stack_tokens() {
  algorithm::Random random(31);
  std::vector<std::int32_t> tokens;
  while (tokens.size() < kStackContext)
    tokens.push_back(static_cast<std::int32_t>(random.next() % kStackVocabulary));
  return tokens;
}

}  // namespace lemma::test
