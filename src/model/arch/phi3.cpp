// SPDX-License-Identifier: Apache-2.0
// Phi-3, Phi-3.5, Phi-4 and Phi-4-mini. Pre-norm RMS, one fused q/k/v matrix and one fused
// gate/up matrix (the reader cuts both), split-half RoPE that may be partial and may be LongRoPE.
//
// The sliding window of the file holds in every layer, as in the published model code:
// Phi-3-mini-4k names 2047. Engines that leave it out give other numbers once a text is longer than
// that.
#include "model/arch/arch.hpp"

namespace lemma::model::arch {

using algorithm::Activation;
using algorithm::NormKind;
using algorithm::RopeLayout;

Plan phi3(const Reader& reader) {
  refuse_experts(reader);
  Plan plan = reader.base_plan(NormKind::kRms);
  const algorithm::RopeSpec rope = reader.rope(RopeLayout::kSplitHalf);
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    Gqa attention = reader.gqa(i);
    attention.rope = rope;
    attention.spec.window = reader.window();
    plan.layers.push_back(
        reader.pre_norm(i, NormKind::kRms, std::move(attention), reader.mlp(i, Activation::kSilu)));
  }
  return plan;
}

}  // namespace lemma::model::arch
