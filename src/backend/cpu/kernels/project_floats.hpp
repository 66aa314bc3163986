// SPDX-License-Identifier: Apache-2.0
// Products of f32 activations with packed weights that widen exactly to f32: F32, F16, BF16; for
// any instruction set.
//
// Each output is the sum of two chains, of the even and of the odd columns:
//
//   even = 0; for k = 0, 2, ..: even = fma(w[k], x[k], even);  odd likewise;  out = even + odd
//
// Two, because one row of one panel then keeps memory busy: a single chain waits for itself at half
// the rate that a core reads at. The tile's height changes no order, so it changes no bits.
#pragma once

#include "backend/cpu/kernels/product.hpp"

namespace lemma::cpu {

/// Bytes from what is read to what is asked for, where a panel of 16-bit elements comes from memory
/// for several rows. A row that reads alone does nothing but read in order, which the processor's
/// own prefetcher foresees; what is asked for by instruction comes more slowly. So does F32.
inline constexpr std::size_t kFloatsAhead = 4096;

/// R rows against P panels that lie beside each other from output `first` on. Not inlined, for the
/// compiler's sake (int8_tile.hpp).
template <typename Simd, std::size_t R, std::size_t P, typename Element>
[[gnu::noinline]] void floats_tile(const ProjectJob& job, std::size_t row, std::size_t first) {
  using F = typename Simd::F;
  constexpr std::size_t kVectors = P * kPanelRows / Simd::kLanes;
  const float* const x = job.x + row * job.x_stride;
  const Element* panel[P];
  for (std::size_t p = 0; p < P; ++p) {
    panel[p] =
        reinterpret_cast<const Element*>(job.panels + (first / kPanelRows + p) * job.panel_bytes);
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
    if (R > 1 && sizeof(Element) == 2 && Simd::kLanes > 1 && row == 0) {
      LEMMA_UNROLL
      for (std::size_t p = 0; p < P; ++p) {
        const auto* const at = reinterpret_cast<const std::byte*>(panel[p] + k * kPanelRows);
        __builtin_prefetch(at + kFloatsAhead);
      }
    }
    add.template operator()<0>(k);
    add.template operator()<1>(k + 1);
  }
  if (k < job.cols) add.template operator()<0>(k);
  constexpr std::size_t kWidth = P * kPanelRows;
  float* const out = job.out + row * job.out_stride + first;
  const auto store = [&](float* to, std::size_t stride) {
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        Simd::store(to + r * stride + v * Simd::kLanes, Simd::add(sum[r][0][v], sum[r][1][v]));
      }
    }
  };
  if (job.outputs - first >= kWidth) {
    store(out, job.out_stride);
  } else {
    float edge[R * kWidth];
    store(edge, kWidth);
    copy_columns<Simd>(edge, kWidth, out, job.out_stride, R, job.outputs - first);
  }
}

/// Rows from `row` on against P panels.
template <typename Simd, typename Element, std::size_t P>
void floats_tiles(const ProjectJob& job, std::size_t row, std::size_t end, std::size_t first) {
  in_tiles<Simd::kFloatRows, P == 1 ? 1 : 2>(row, end, [&]<std::size_t R>(std::size_t at) {
    floats_tile<Simd, R, P, Element>(job, at, first);
  });
}

/// Where there are registers for it rows share two panels: more than one row reads two streams of
/// memory faster than one, and in the cache a splat serves twice. Panels of 16 bits are read side
/// by side by the first tile only, from memory; in the cache one is read faster.
template <typename Simd, typename Element>
void project_floats(const ProjectJob& job) {
  std::size_t first = 0;
  if constexpr (Simd::kLanes == kPanelRows) {
    constexpr std::size_t kOutputs = 2 * kPanelRows, kMost = Simd::kFloatRows;
    const std::size_t tiles = (job.rows + kMost - 1) / kMost;
    const std::size_t begun = sizeof(Element) == 4 ? job.rows : (job.rows + tiles - 1) / tiles;
    if (job.rows > 1) {
      for (; first + kPanelRows < job.outputs; first += kOutputs) {
        floats_tiles<Simd, Element, 2>(job, 0, begun, first);
        for (std::size_t p = 0; p < 2 && begun < job.rows; ++p) {
          floats_tiles<Simd, Element, 1>(job, begun, job.rows, first + p * kPanelRows);
        }
      }
    }
  }
  for (; first < job.outputs; first += kPanelRows) {
    floats_tiles<Simd, Element, 1>(job, 0, job.rows, first);
  }
}

}  // namespace lemma::cpu
