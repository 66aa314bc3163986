// SPDX-License-Identifier: Apache-2.0
// Parts that several families of files share: latent attention with its rotation and its indexer,
// the temperature of queries, per-layer limits of activations. They read keys and name tensors as
// `Reader` does; the families say what is theirs.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/arch/arch.hpp"

namespace lemma::model::arch {

/// Latent attention with the names attn_q_a/q_b (or a direct attn_q), attn_kv_a_mqa, attn_k_b and
/// attn_v_b (or both in attn_kv_b), without rotation; the scale is that of an expanded head. Dims
/// that all heads share, as many as rope.dimension_count says, none without it.
Mla latent_attention(const Reader& reader, std::uint32_t layer);

/// How latent attention turns: `rope` of its shared dims, and what YaRN multiplies scores by.
struct LatentRope {
  algorithm::RopeSpec rope;
  float score_factor = 1.f;
};
/// Neighbours turn, in the last dims of a head. `unit_magnitude`: the family's models have equal
/// magnitudes for both of YaRN's multipliers, of which files state one, so that they cancel.
LatentRope latent_rope(const Reader& reader, bool unit_magnitude);
void turn(Mla& mla, const LatentRope& rope);

/// The keys attention.temperature_*: the factor, 0 for none, and the length of a step.
struct Temperature {
  float scale = 0.f;
  std::uint32_t floor = 0;
};
Temperature temperature(const Reader& reader);

/// The keys attention.indexer.*: heads, dims and how many rows are chosen. The rotated dims are
/// those of rope.dimension_count.
algorithm::IndexerSpec indexer_spec(const Reader& reader);

/// One number per layer (or one for all), each finite and not negative; `fallback` without the key.
/// Draft blocks behind a list's end are like its last layer.
std::vector<float> limits(const Reader& reader, std::string_view suffix, float fallback);

/// The kind of GELU that the key feed_forward_activation names, gelu_erf or gelu_tanh. It is
/// lemma's own: GGUF files do not say, and are run with the tanh form without it. The two differ by
/// at most 5e-4 per activation.
algorithm::Activation gelu_kind(const Reader& reader);

/// A key that must be a whole number from 1 to 2^24.
std::uint32_t positive(const Reader& reader, std::string_view suffix);

}  // namespace lemma::model::arch
