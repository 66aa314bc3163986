// SPDX-License-Identifier: Apache-2.0
// Products of f32 activations with packed weights that widen exactly to f32: F32, F16, BF16; for
// any instruction set.
//
// Each output is the sum of two chains, of the even and of the odd columns:
//
//   even = 0; for k = 0, 2, ..: even = fma(w[k], x[k], even);  odd likewise;  out = even + odd
//
// Two, because one row of one panel then keeps memory busy: a single chain waits for itself at half
// the rate that a core reads at, and panels side by side are read a fifth more slowly than one. The
// tile's height changes no order, so it changes no bits.
#pragma once

#include "backend/cpu/kernels/product.hpp"

namespace lemma::cpu {

/// Bytes from what is read to what is asked for, where a panel comes from memory.
inline constexpr std::size_t kFloatsAhead = 4096;

template <typename Simd, std::size_t R, std::size_t V>
void store_chains(const ProjectJob& job, const typename Simd::F (&sum)[R][2][V], std::size_t row,
                  std::size_t first) {
  LEMMA_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    LEMMA_UNROLL
    for (std::size_t v = 0; v < V; ++v) {
      store_columns<Simd>(job.out + (row + r) * job.out_stride,
                          Simd::add(sum[r][0][v], sum[r][1][v]), first + v * Simd::kLanes,
                          job.outputs);
    }
  }
}

/// R rows against P panels that lie beside each other; `first` is their first output.
template <typename Simd, std::size_t R, std::size_t P, typename Element>
void floats_tile(const ProjectJob& job, std::size_t row, std::size_t first) {
  using F = typename Simd::F;
  constexpr std::size_t kVectors = P * kPanelRows / Simd::kLanes;
  const float* const x = job.x + row * job.x_stride;
  const Element* panel[P];
  for (std::size_t p = 0; p < P; ++p) {
    // Beside a last panel stands the same once more, whose outputs are not there.
    const std::size_t output =
        first + p * kPanelRows < job.outputs ? first + p * kPanelRows : first;
    panel[p] = reinterpret_cast<const Element*>(job.panels + output / kPanelRows * job.panel_bytes);
  }
  F sum[R][2][kVectors];
  LEMMA_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    LEMMA_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) sum[r][0][v] = sum[r][1][v] = Simd::zero();
  }
  const auto add = [&]<std::size_t Chain>(std::size_t k) {
    F w[kVectors];
    LEMMA_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t output = v * Simd::kLanes;
      w[v] = Simd::load(panel[output / kPanelRows] + k * kPanelRows + output % kPanelRows);
    }
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      const F value = Simd::set(x[r * job.x_stride + k]);
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        sum[r][Chain][v] = Simd::fma(w[v], value, sum[r][Chain][v]);
      }
    }
  };
  std::size_t k = 0;
  for (; k + 2 <= job.cols; k += 2) {
    if (Simd::kLanes > 1 && row == 0) {
      LEMMA_UNROLL
      for (std::size_t p = 0; p < P; ++p) {
        const auto* const at = reinterpret_cast<const std::byte*>(panel[p] + k * kPanelRows);
        __builtin_prefetch(at + kFloatsAhead);
        if constexpr (sizeof(Element) == 4) __builtin_prefetch(at + kFloatsAhead + 64);
      }
    }
    add.template operator()<0>(k);
    add.template operator()<1>(k + 1);
  }
  if (k < job.cols) add.template operator()<0>(k);
  store_chains<Simd, R, kVectors>(job, sum, row, first);
}

template <typename Simd, typename Element>
void project_floats(const ProjectJob& job) {
  // Four rows of 16-bit weights share two panels where there are registers for it: panel by panel
  // they would read their activations from the second cache twice as often, and memory would wait.
  constexpr std::size_t kTogether = Simd::kLanes == kPanelRows && sizeof(Element) == 2 ? 2 : 1;
  for (std::size_t first = 0; first < job.outputs; first += kTogether * kPanelRows) {
    std::size_t row = 0;
    const auto tiles = [&]<std::size_t R, std::size_t P>() {
      for (; row + R <= job.rows; row += R) {
        for (std::size_t p = 0; p < kTogether && first + p * kPanelRows < job.outputs; p += P) {
          floats_tile<Simd, R, P, Element>(job, row, first + p * kPanelRows);
        }
      }
    };
    if constexpr (Simd::kFloatRows > 4) tiles.template operator()<Simd::kFloatRows, 1>();
    if constexpr (Simd::kFloatRows > 2) {
      tiles.template operator()<(Simd::kFloatRows < 4 ? Simd::kFloatRows : 4), kTogether>();
    }
    if constexpr (Simd::kFloatRows > 1) tiles.template operator()<2, 1>();
    tiles.template operator()<1, 1>();
  }
}

}  // namespace lemma::cpu
