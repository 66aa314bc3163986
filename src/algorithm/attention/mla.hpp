// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention: a token is remembered as one latent row and one rotated key part,
// from which every head's key and value are expanded. The expanded form is the definition; the
// absorbed form moves the expansion to the query and the output and equals it within a tolerance.
// Both read latents as the state holds them, those of the running step too. Projections, latent
// norms and rotation are other operations. Formulas: docs/contract.md, "Latent attention".
#pragma once

#include <cstdint>
#include <span>

#include "algorithm/attention/lists.hpp"
#include "algorithm/slot.hpp"

namespace lemma::algorithm {

struct MlaSpec {
  std::uint32_t heads = 0;        ///< H
  std::uint32_t q_rank = 0;       ///< width of the query latent; 0: queries are projected directly
  std::uint32_t latent_rank = 0;  ///< c, width of the key-value latent
  std::uint32_t nope_dim = 0;     ///< dn of a head's key that comes from the latent
  std::uint32_t rope_dim = 0;     ///< dr of the key part that all heads share; even, may be 0
  std::uint32_t value_dim = 0;    ///< dv
  float scale = 0.f;  ///< usually (dn + dr)^-0.5, times YaRN's m^2 where a model says so
  /// eps of the norms of both latents: its own number, since models that state another eps for the
  /// rest of the layer keep 1e-6 here.
  float latent_eps = 1e-6f;
  bool use_rope = true;      ///< false: the shared part exists and is not turned
  bool output_gate = false;  ///< the output is multiplied by sigmoid(gate) before its projection
  /// Query temperature as in GqaSpec.
  float temperature_scale = 0.f;
  std::uint32_t temperature_floor = 0;

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  /// dn + dr: a query's width, [dn | dr].
  std::uint32_t query_dim() const noexcept { return nope_dim + rope_dim; }
  /// The latent after its norm, and (for dr > 0) the shared key part after rotation, which no
  /// format coarser than f16 holds.
  Slots slots() const;
  friend bool operator==(const MlaSpec&, const MlaSpec&) = default;
};

/// What expands latents for one head. Files that keep the key half transposed, or both halves in
/// one matrix with [dn | dv] rows per head, say so with a view.
struct MlaHead {
  std::span<const float> key_up;    ///< [dn, c]
  std::span<const float> value_up;  ///< [dv, c]
};

/// One head's key [dn + dr] and value [dv] of a token: products with its latent [c], and the shared
/// part [dr] as it is. Either output may be empty.
void expand_latent(const MlaSpec& spec, const MlaHead& head, std::span<const float> latent,
                   std::span<const float> rope, std::span<float> key,
                   std::span<float> value) noexcept;

/// Attention of one head: `query` [dn + dr] at `position` over the tokens `visible` (not empty)
/// into `out` [dv], by expanding each token. `rope` is not called when dr is 0.
void attend_expanded(const MlaSpec& spec, const MlaHead& head, std::span<const float> query,
                     std::uint32_t position, const RowIndices& visible, const RowReader& latent,
                     const RowReader& rope, std::span<float> out) noexcept;

/// The same by attending over latents: the query is taken through the transposed key half first,
/// the mean latent through the value half last.
void attend_absorbed(const MlaSpec& spec, const MlaHead& head, std::span<const float> query,
                     std::uint32_t position, const RowIndices& visible, const RowReader& latent,
                     const RowReader& rope, std::span<float> out) noexcept;

}  // namespace lemma::algorithm
