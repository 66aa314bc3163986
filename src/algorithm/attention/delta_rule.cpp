// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/delta_rule.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/norm.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

/// The parts of row i of a cell block.
template <typename Float>
struct CellRow {
  CellRow(const DeltaShape& shape, std::span<Float> cell, std::size_t i)
      : key(cell.data() + i * shape.row_size()),
        decay(key + shape.key_dim),
        correction(decay + shape.decays()) {}
  Float *key, *decay, *correction;
};

/// What is left at row `last` of what rows wrote, for one channel: factor[j] of row j, and the
/// returned one of the matrix. The logarithms are added from `last` down, so that a long strong
/// decay before row j cannot blur the weak one after it, as differences of running sums would.
float factors(const DeltaShape& shape, std::span<const float> cell, std::size_t last,
              std::size_t channel, float* factor) noexcept {
  float log = 0.f;
  for (std::size_t j = last + 1; j-- > 0;) {
    factor[j] = std::exp(log);
    log += CellRow<const float>(shape, cell, j).decay[channel];
  }
  return std::exp(log);
}

}  // namespace

void delta_step(const DeltaShape& shape, const DeltaToken& token, std::span<float> matrix,
                std::span<float> out) noexcept {
  const std::size_t n = shape.key_dim, width = shape.value_dim;
  LEMMA_CHECK(matrix.size() == shape.matrix_size() && out.size() == width);
  LEMMA_CHECK(token.query.size() == n && token.key.size() == n && token.value.size() == width);
  LEMMA_CHECK(token.log_decay.size() == shape.decays());
  float decay = 0.f;
  for (std::size_t c = 0; c < n; ++c) {
    if (c == 0 || shape.decay_per_channel) decay = std::exp(token.log_decay[c]);
    for (std::size_t v = 0; v < width; ++v) matrix[c * width + v] *= decay;
  }
  for (std::size_t v = 0; v < width; ++v) {
    float answer = 0.f, read = 0.f;
    for (std::size_t c = 0; c < n; ++c) answer += matrix[c * width + v] * token.key[c];
    const float correction = token.beta * (token.value[v] - answer);
    for (std::size_t c = 0; c < n; ++c) {
      float& entry = matrix[c * width + v];
      entry += token.key[c] * correction;
      read += entry * token.query[c];
    }
    out[v] = read;
  }
}

void delta_cell_step(const DeltaShape& shape, std::uint32_t place, const DeltaToken& token,
                     std::span<float> matrix, std::span<float> cell,
                     std::span<float> out) noexcept {
  const std::size_t n = shape.key_dim, width = shape.value_dim, last = place;
  LEMMA_CHECK(place < kDeltaCell && cell.size() == shape.cell_size() && out.size() == width);
  LEMMA_CHECK(matrix.size() == shape.matrix_size());
  const CellRow<float> row(shape, cell, last);
  std::copy(token.key.begin(), token.key.end(), row.key);
  std::copy(token.log_decay.begin(), token.log_decay.end(), row.decay);
  std::fill_n(row.correction, width, 0.f);
  std::fill(out.begin(), out.end(), 0.f);

  // Decayed products of this key and query with every key of the cell, and with the matrix.
  std::array<float, kDeltaCell> factor{}, key_key{}, query_key{};
  float whole = 0.f;
  for (std::size_t c = 0; c < n; ++c) {
    if (c == 0 || shape.decay_per_channel) whole = factors(shape, cell, last, c, factor.data());
    for (std::size_t j = 0; j <= last; ++j) {
      const float key = factor[j] * CellRow<float>(shape, cell, j).key[c];
      key_key[j] += token.key[c] * key;
      query_key[j] += token.query[c] * key;
    }
    const float* const entries = matrix.data() + c * width;
    for (std::size_t v = 0; v < width; ++v) {
      row.correction[v] += token.key[c] * (whole * entries[v]);
      out[v] += token.query[c] * (whole * entries[v]);
    }
  }
  for (std::size_t v = 0; v < width; ++v) {
    float answer = row.correction[v];
    for (std::size_t j = 0; j < last; ++j) {
      answer += key_key[j] * CellRow<float>(shape, cell, j).correction[v];
    }
    row.correction[v] = token.beta * (token.value[v] - answer);
    for (std::size_t j = 0; j <= last; ++j) {
      out[v] += query_key[j] * CellRow<float>(shape, cell, j).correction[v];
    }
  }
  if (place + 1 == kDeltaCell) delta_cell_advance(shape, cell, kDeltaCell, matrix);
}

void delta_cell_advance(const DeltaShape& shape, std::span<const float> cell, std::uint32_t rows,
                        std::span<float> matrix) noexcept {
  const std::size_t width = shape.value_dim;
  LEMMA_CHECK(rows <= kDeltaCell && matrix.size() == shape.matrix_size());
  if (rows == 0) return;
  std::array<float, kDeltaCell> factor{};
  float whole = 0.f;
  for (std::size_t c = 0; c < shape.key_dim; ++c) {
    if (c == 0 || shape.decay_per_channel) whole = factors(shape, cell, rows - 1, c, factor.data());
    for (std::size_t v = 0; v < width; ++v) {
      float entry = whole * matrix[c * width + v];
      for (std::size_t j = 0; j < rows; ++j) {
        const CellRow<const float> row(shape, cell, j);
        entry += factor[j] * row.key[c] * row.correction[v];
      }
      matrix[c * width + v] = entry;
    }
  }
}

float log_decay(float rate, float raw) noexcept {
  return -std::fabs(rate) * softplus(raw);
}

float bounded_log_decay(float rate, float raw, float bound) noexcept {
  return bound * sigmoid(std::fabs(rate) * raw);
}

void gated_norm(OutputGate kind, float eps, std::span<const float> weight,
                std::span<const float> gate, std::span<float> heads) noexcept {
  const std::size_t n = weight.size();
  LEMMA_CHECK(n > 0 && heads.size() % n == 0 && gate.size() == heads.size());
  const NormSpec norm{.kind = NormKind::kRms, .eps = eps};
  for (std::size_t begin = 0; begin < heads.size(); begin += n) {
    const std::span<float> head = heads.subspan(begin, n);
    normalize(norm, head, weight, {}, head);
    for (std::size_t i = 0; i < n; ++i) {
      const float g = gate[begin + i];
      head[i] *= kind == OutputGate::kSilu ? g * sigmoid(g) : sigmoid(g);
    }
  }
}

Slots recurrent_slots(const DeltaShape& shape, std::uint32_t heads,
                      const ShortConvolutionSpec& convolution, DeltaForm form) {
  Slot block;
  block.kind = SlotKind::kFixed;
  block.width = std::uint32_t(heads * shape.matrix_size());
  Slots slots = {block};
  for (const Slot& slot : convolution.slots()) slots.push_back(slot);
  if (form == DeltaForm::kCells) {
    block.width = std::uint32_t(heads * shape.cell_size());
    slots.push_back(block);
  }
  return slots;
}

bool admit(RecurrentState& state, std::uint32_t position) noexcept {
  if (position != state.next) return false;
  if (position == 0) {
    std::fill(state.matrix.begin(), state.matrix.end(), 0.f);
    std::fill(state.history.begin(), state.history.end(), 0.f);
  }
  ++state.next;
  return true;
}

void delta_rule(const DeltaShape& shape, std::size_t head, std::uint32_t position,
                const DeltaToken& token, const RecurrentState& state,
                std::span<float> out) noexcept {
  const std::size_t size = shape.matrix_size();
  LEMMA_CHECK(state.matrix.size() / size > head);
  const std::span<float> matrix = state.matrix.subspan(head * size, size);
  if (state.cells.empty()) {
    delta_step(shape, token, matrix, out);
    return;
  }
  LEMMA_CHECK(state.cells.size() / shape.cell_size() > head);
  delta_cell_step(shape, position % kDeltaCell, token, matrix,
                  state.cells.subspan(head * shape.cell_size(), shape.cell_size()), out);
}

}  // namespace lemma::algorithm
