// SPDX-License-Identifier: Apache-2.0
// Manifold-constrained hyper-connections (Xie et al., 2026): the residual is H streams. Around each
// sublayer they are reduced to one input, mixed among themselves by a nearly doubly stochastic
// matrix, and each takes its share of the sublayer's output. This file owns the spec and the f32
// definition, row by row; nothing is kept from token to token.
// Formulas: docs/contract.md, "Hyper-connections".
//
//   streams:      X [H][D], one row of H * D floats
//   parameters:   fn [(2 + H) H, H * D], base [(2 + H) H], scale [3]
//   coefficients: [pre H][post H][M H x H, from stream j (row) to stream k (column)]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lemma::algorithm {

struct HyperConnectionSpec {
  std::uint32_t streams = 0;     ///< H
  std::uint32_t width = 0;       ///< D of one stream
  std::uint32_t iterations = 0;  ///< Sinkhorn's, counting the softmax as the first row step
  float eps = 1e-6f;             ///< of pre, M and Sinkhorn's divisions
  float norm_eps = 1e-6f;        ///< of the norm over all streams

  /// Throws kUnsupported naming the field that is wrong.
  void validate() const;
  std::size_t state_size() const noexcept { return std::size_t(streams) * width; }
  std::size_t coefficients() const noexcept { return std::size_t(2 + streams) * streams; }
  friend bool operator==(const HyperConnectionSpec&, const HyperConnectionSpec&) = default;
};

struct HyperConnectionWeights {
  std::span<const float> fn;     ///< [(2 + H) H, H * D]
  std::span<const float> base;   ///< [(2 + H) H]
  std::span<const float> scale;  ///< [3]: pre, post, M
};

/// A view into the coefficients of one row.
struct HyperCoefficients {
  HyperCoefficients(const HyperConnectionSpec& spec, std::span<const float> row)
      : pre(row.first(spec.streams)),
        post(row.subspan(spec.streams, spec.streams)),
        matrix(row.subspan(2 * std::size_t(spec.streams))) {}
  std::span<const float> pre, post, matrix;
};

/// Every stream is the embedding at the entry.
void hyper_enter(const HyperConnectionSpec& spec, std::span<const float> embedding,
                 std::span<float> state) noexcept;

/// The coefficients of `state` [H * D] into `out` [(2 + H) H]; `scratch` [H * D].
void hyper_coefficients(const HyperConnectionSpec& spec, const HyperConnectionWeights& weights,
                        std::span<const float> state, std::span<float> scratch,
                        std::span<float> out) noexcept;

/// The part of it that follows the product: `mix` [(2 + H) H] becomes coefficients in place.
void hyper_split(const HyperConnectionSpec& spec, std::span<const float> base,
                 std::span<const float> scale, std::span<float> mix) noexcept;

/// Sinkhorn's normalisation of H x H logits in place: softmax over each row, then columns, and
/// (rows, columns) until `iterations` column steps are made.
void sinkhorn(const HyperConnectionSpec& spec, std::span<float> matrix) noexcept;

/// The sublayer's input before its norm: out [D] = sum over streams of pre_i X_i.
void hyper_reduce(const HyperConnectionSpec& spec, const HyperCoefficients& coefficients,
                  std::span<const float> state, std::span<float> out) noexcept;

/// The streams behind the sublayer: out_k = post_k y + sum over j of M[j][k] X_j, so M is used
/// transposed. `y` [D]; `out` [H * D] is not `state`.
void hyper_merge(const HyperConnectionSpec& spec, const HyperCoefficients& coefficients,
                 std::span<const float> state, std::span<const float> y,
                 std::span<float> out) noexcept;

/// The end: out [D] = sum of (sigmoid(m_i scale + base_i) + eps) X_i, with m = fn [H, H * D] times
/// the normed state, `base` [H]; `scratch` [H * D].
void hyper_exit(const HyperConnectionSpec& spec, std::span<const float> fn,
                std::span<const float> base, float scale, std::span<const float> state,
                std::span<float> scratch, std::span<float> out) noexcept;

/// The other end that models have: the mean of the streams.
void hyper_exit_mean(const HyperConnectionSpec& spec, std::span<const float> state,
                     std::span<float> out) noexcept;

}  // namespace lemma::algorithm
