// SPDX-License-Identifier: Apache-2.0
// GPT-2: learned positions added to the embeddings, LayerNorms with bias, one fused q/k/v matrix
// with bias, an ungated GELU (tanh) block with biases. Nothing rotates.
#include "base/raise.hpp"
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;

Plan gpt2(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kLayer);
  const weights::TensorInfo& positions = reader.checkpoint().at("position_embd.weight");
  if (positions.rows() != reader.trained_context())
    base::raise(ErrorKind::kBadFile, "tensor '{}' has {} rows; expected '{}', which is {}",
                positions.name, positions.rows(), reader.key("context_length"),
                reader.trained_context());
  if (reader.context() > reader.trained_context())
    base::raise(ErrorKind::kUnsupported,
                "a context of {} is asked for, but the model has learned positions for {}",
                reader.context(), reader.trained_context());
  plan.embedding.positions.tensor = positions.name;
  plan.embedding.position_rows = reader.trained_context();

  for (std::uint32_t i = 0; i < reader.layers(); ++i)
    plan.layers.push_back(
        {.sites = {
             {.norm = reader.norm(i, "attn_norm", NormKind::kLayer), .mixer = reader.gqa(i)},
             {.norm = reader.norm(i, "ffn_norm", NormKind::kLayer),
              .mixer = reader.mlp(i, Activation::kGeluTanh)},
         }});
  return plan;
}

}  // namespace lemma::model::arch
