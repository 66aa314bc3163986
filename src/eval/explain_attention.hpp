// SPDX-License-Identifier: Apache-2.0
// What attention reads: the weights of every head, recomputed from captured rows by the contract's
// own functions. These give the weighted sum of values; with the identity as values that sum is the
// weights. Keys are rounded as the state holds them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eval/site_rows.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::eval {

/// One site that attends, and the tensors that its weights come from.
struct AttentionSite {
  std::string name;  ///< "layers.3.attention"
  std::uint32_t layer = 0;
  std::uint32_t heads = 0;
  std::size_t operation = 0;                    ///< index into the program's
  const model::Mixer* mixer = nullptr;          ///< of the plan
  backend::Tensor query, key, rope, selection;  ///< key: keys or latents; rope: of latents
  std::string hidden;  ///< why the weights cannot be shown; empty where they can
};

/// All sites that look along the tokens, in order; `model` must outlive them.
std::vector<AttentionSite> attention_sites(const runtime::LoadedModel& model);

/// Recomputes the weights of one site. `rows` must hold the site's tensors and outlive this.
class AttentionWeights {
 public:
  AttentionWeights(const runtime::LoadedModel& model, const state::Layout& layout,
                   const AttentionSite& site, const SiteRows& rows);

  std::uint32_t tokens() const noexcept { return tokens_; }
  /// The weights of head `head` of the row at `position`, over kv indices [0, tokens()); they sum
  /// to 1, or to less where a sink takes its share.
  std::vector<float> of(std::uint32_t head, std::uint32_t position);

 private:
  void load_latents(const runtime::LoadedModel& model, const state::Layout& layout,
                    const SiteRows& rows);
  std::vector<std::uint32_t> selected(std::uint32_t head, std::uint32_t position) const;

  const AttentionSite& site_;
  const SiteRows& rows_;
  std::uint32_t tokens_ = 0;
  algorithm::GqaSpec spec_;  ///< how a head scores; of latent heads too, expanded
  std::uint32_t lists_ = 1;  ///< of a selection
  std::vector<float> keys_;  ///< [T, K, d]
  std::vector<float> sinks_, slopes_;
  std::vector<float> one_;  ///< zeros around a single 1: any row of the identity
};

}  // namespace lemma::eval
