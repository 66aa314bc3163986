// SPDX-License-Identifier: Apache-2.0
// BERT: an encoder. Every token sees every other; learned positions and the first token type are
// added to the embeddings, which are normed; each branch's sum with the stream is normed
// (LayerNorm), so there is no final norm; and no head: the plan ends in hidden states.
//
// The published model has GELU with erf, which checkpoints other than GGUF can say (gelu_kind).
#include <string>

#include "base/raise.hpp"
#include "model/arch/parts.hpp"

namespace lemma::model::arch {

using algorithm::NormKind;

Plan bert(const Reader& reader) {
  refuse_experts(reader);
  const std::string causal = reader.key("attention.causal");
  if (reader.metadata().boolean_or(causal, true))
    base::raise(ErrorKind::kUnsupported, "key '{}': expected false in an encoder, found true",
                causal);
  Plan plan = reader.base_plan(NormKind::kLayer);
  plan.final_norm.reset();
  plan.head = {};
  reader.add_learned_positions(plan);
  plan.embedding.token_type = {"token_types.weight", View::rows(0, 1)};
  plan.embedding.norm = reader.named_norm("token_embd_norm", NormKind::kLayer);

  const algorithm::Activation activation = gelu_kind(reader);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.spec.causal = false;
    plan.layers.push_back({.sites = {
                               {.mixer = std::move(attention),
                                .sum_norm = reader.norm(i, "attn_output_norm", NormKind::kLayer)},
                               {.mixer = reader.mlp(i, activation),
                                .sum_norm = reader.norm(i, "layer_output_norm", NormKind::kLayer)},
                           }});
  }
  return plan;
}

}  // namespace lemma::model::arch
