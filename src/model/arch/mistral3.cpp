// SPDX-License-Identifier: Apache-2.0
// Mistral 3 (Ministral 3, Mistral Small 4's dense kin): Llama's layer with YaRN and a temperature
// of the queries that grows with the position, as in Llama 4's long-context attention.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan mistral3(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kInterleaved);
  // The temperature rises once per original context; a file may state another length.
  const float temperature = reader.scale("attention.temperature_scale", 0.f);
  std::uint32_t floor = reader.metadata().u32_or(reader.key("attention.temperature_length"), 0);
  if (floor == 0) floor = reader.original_context();

  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.rope = rope;
    if (temperature != 0.f) {
      attention.spec.temperature_scale = temperature;
      attention.spec.temperature_floor = floor;
    }
    plan.layers.push_back(
        reader.pre_norm(i, NormKind::kRms, std::move(attention), reader.mlp(i, Activation::kSilu)));
  }
  return plan;
}

}  // namespace lemma::model::arch
