// SPDX-License-Identifier: Apache-2.0
// The gated delta rule of one head, which Gated DeltaNet and KDA share: a matrix [d_k, d_v] that
// forgets, then is corrected by what it would have answered to the new key. Two forms of it: one
// step (the definition), and cells of 64 positions, in which the matrix stands still at the cell's
// first position and the rows since then are kept beside it. Cells lie on a grid of absolute
// positions and a row reads only rows before it, so any cut of a text gives the same bits; and the
// sums of a cell are products of small matrices. Formulas: docs/contract.md, "Gated delta rule".
//
//   cell block: 64 rows of [key d_k][log decays 1 or d_k][correction d_v]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "algorithm/attention/short_convolution.hpp"
#include "algorithm/slot.hpp"

namespace lemma::algorithm {

/// How rows are taken in; a sequence keeps to one of them.
enum class DeltaForm : std::uint8_t { kSteps, kCells };

/// Positions of one cell.
inline constexpr std::uint32_t kDeltaCell = 64;

struct DeltaShape {
  std::uint32_t key_dim = 0, value_dim = 0;
  bool decay_per_channel = false;  ///< KDA: each row of the matrix has its own decay

  std::size_t decays() const noexcept { return decay_per_channel ? key_dim : 1; }
  std::size_t matrix_size() const noexcept { return std::size_t(key_dim) * value_dim; }
  std::size_t row_size() const noexcept { return key_dim + decays() + value_dim; }
  std::size_t cell_size() const noexcept { return kDeltaCell * row_size(); }
};

/// What one token says to one head; query and key as they are used (normalised, scaled).
struct DeltaToken {
  std::span<const float> query, key;  ///< [d_k]
  std::span<const float> value;       ///< [d_v]
  std::span<const float> log_decay;   ///< [1] or [d_k], each <= 0
  float beta = 0.f;                   ///< how much of the correction is made
};

/// One step: forgets, corrects `matrix` [d_k, d_v] and reads it into `out` [d_v].
void delta_step(const DeltaShape& shape, const DeltaToken& token, std::span<float> matrix,
                std::span<float> out) noexcept;

/// One step in cells: the token at absolute position p has `place` p % 64; `matrix` is that of the
/// cell's first position and `cell` [cell_size()] holds the rows [0, place). The row is added; at
/// place 63 the matrix moves on to the next cell, whose rows begin afresh.
void delta_cell_step(const DeltaShape& shape, std::uint32_t place, const DeltaToken& token,
                     std::span<float> matrix, std::span<float> cell, std::span<float> out) noexcept;

/// Moves `matrix` on over the first `rows` rows of `cell`: what the step form would hold by then.
void delta_cell_advance(const DeltaShape& shape, std::span<const float> cell, std::uint32_t rows,
                        std::span<float> matrix) noexcept;

/// The log decay -|rate| softplus(raw), `raw` with its bias added. A checkpoint's rate is
/// exp(A_log), kept by some files with its sign turned; it is positive before, so the sign is no
/// information and is dropped here.
float log_decay(float rate, float raw) noexcept;
/// The bounded form: bound * sigmoid(|rate| raw), in (bound, 0) for a bound below 0.
float bounded_log_decay(float rate, float raw, float bound) noexcept;

/// How a head's output is gated after its norm.
enum class OutputGate : std::uint8_t {
  kSilu,     ///< times g sigmoid(g)
  kSigmoid,  ///< times sigmoid(g)
};

/// heads[h] = rms(heads[h], weight, eps) * gate(h), in place: norm first, then the gate. `weight`
/// [n] is shared by all heads of width n; `gate` is as wide as `heads`.
void gated_norm(OutputGate kind, float eps, std::span<const float> weight,
                std::span<const float> gate, std::span<float> heads) noexcept;

/// What a sequence remembers in one recurrent layer; the caller owns the blocks. A new sequence has
/// `next` 0 and blocks of any content. With `cells` given, rows are taken in by cells, otherwise
/// step by step.
struct RecurrentState {
  std::uint32_t next = 0;    ///< kv index of the token that must come next
  std::span<float> matrix;   ///< heads x [d_k, d_v]
  std::span<float> history;  ///< of the convolution
  std::span<float> cells;    ///< heads x [cell_size()], or empty
};

/// The slots of `heads` heads behind a convolution, all of fixed size and f32: the matrices; the
/// convolution's history, for a kernel above one; and by cells the cell blocks.
Slots recurrent_slots(const DeltaShape& shape, std::uint32_t heads,
                      const ShortConvolutionSpec& convolution, DeltaForm form);

/// Admits the token at `position`: clears the state for position 0, and refuses, changing nothing,
/// any position but the next.
[[nodiscard]] bool admit(RecurrentState& state, std::uint32_t position) noexcept;

/// Takes head `head`'s token at `position` into an admitted state, by cells or not.
void delta_rule(const DeltaShape& shape, std::size_t head, std::uint32_t position,
                const DeltaToken& token, const RecurrentState& state,
                std::span<float> out) noexcept;

}  // namespace lemma::algorithm
