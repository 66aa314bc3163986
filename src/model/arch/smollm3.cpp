// SPDX-License-Identifier: Apache-2.0
// SmolLM3: Llama's layer, but every fourth layer does not rotate its queries and keys.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

namespace {
constexpr std::uint32_t kUnrotatedInterval = 4;  // layers 3, 7, 11, ...; files do not carry it
}

Plan smollm3(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kInterleaved);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    if ((i + 1) % kUnrotatedInterval != 0) attention.rope = rope;
    plan.layers.push_back(
        reader.pre_norm(i, NormKind::kRms, std::move(attention), reader.mlp(i, Activation::kSilu)));
  }
  return plan;
}

}  // namespace lemma::model::arch
