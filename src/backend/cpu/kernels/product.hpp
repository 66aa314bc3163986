// SPDX-License-Identifier: Apache-2.0
// Products of f32 rows with panels that widen exactly to f32 (attention's keys and values, weights
// decoded for one product), for any instruction set: `Simd` supplies the vectors;
// kernels_scalar.cpp shows every member that it must have. Simd types stand in anonymous
// namespaces, which keeps everything made from these templates local to one translation unit: code
// for one instruction set can never be linked into another.
//
// Each output is one chain: sum = 0; for k ascending: sum = fma(w[k], x[k], sum). The tile of R
// rows and C vectors of columns only decides how many chains run side by side; it never touches
// the order within one. That makes all tiles, and products cut anywhere in k, equal to the bit.
#pragma once

#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/kernels/unroll.hpp"

namespace lemma::cpu {

/// Elements of panels that are 16 bits wide.
enum class F16 : std::uint16_t {};
enum class BF16 : std::uint16_t {};

/// A product of any element type; see ProductJob for the fields.
template <typename Element>
struct ProductTile {
  const Element* panel;
  std::size_t k_stride, panel_stride, k;
  const float* x;
  std::size_t x_stride;
  float* out;  ///< element [row 0, column 0]
  std::size_t out_stride;
  std::size_t columns;
  bool accumulate;
  Ahead ahead = {};
};

/// Asks for a line into the second cache: what is asked for this way is not needed soon.
template <typename Simd>
void ask_for(const Ahead& ahead, std::size_t row, std::size_t line) {
  __builtin_prefetch(ahead.first + row * ahead.stride + 64 * line, 0, 2);
}

/// Calls body<R>(row) for tiles of Least to Most rows, as equal as can be, so that one more row
/// costs its share; tiles of 8 come first, and what is left last, where low tiles cost more than
/// that. Least rows or more must be there in every tile.
template <std::size_t Most, std::size_t Least, typename Body>
void in_tiles(std::size_t begin, std::size_t end, const Body& body) {
  std::size_t row = begin;
  for (std::size_t tiles = (end - begin + Most - 1) / Most; tiles > 0; --tiles) {
    const std::size_t left = end - row, even = (left + tiles - 1) / tiles;
    const std::size_t height = Most == 8 && left > 8 ? 8 : even;
    const auto run_if = [&]<std::size_t R>() {
      if constexpr (R >= Least && R <= Most) {
        if (height == R) body.template operator()<R>(row);
      }
    };
    run_if.template operator()<1>();
    run_if.template operator()<2>();
    run_if.template operator()<3>();
    run_if.template operator()<4>();
    run_if.template operator()<5>();
    run_if.template operator()<6>();
    run_if.template operator()<7>();
    run_if.template operator()<8>();
    row += height;
  }
}

/// Columns of rows, where a panel has fewer than a tile computes.
template <typename Simd>
[[gnu::noinline]] void copy_columns(const float* from, std::size_t from_stride, float* to,
                                    std::size_t to_stride, std::size_t rows, std::size_t columns) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < columns; ++i) to[r * to_stride + i] = from[r * from_stride + i];
  }
}

template <typename Simd>
void store_columns(float* out, typename Simd::F sum, std::size_t column, std::size_t columns) {
  if (column + Simd::kLanes <= columns) {
    Simd::store(out + column, sum);
  } else if (column < columns) {
    float lanes[Simd::kLanes];
    Simd::store(lanes, sum);
    for (std::size_t i = 0; column + i < columns; ++i) out[column + i] = lanes[i];
  }
}

template <typename Simd>
typename Simd::F load_columns(const float* out, std::size_t column, std::size_t columns) {
  if (column + Simd::kLanes <= columns) return Simd::load(out + column);
  float lanes[Simd::kLanes] = {};
  for (std::size_t i = 0; column + i < columns; ++i) lanes[i] = out[column + i];
  return Simd::load(lanes);
}

template <typename Simd, std::size_t R, std::size_t C, typename Element>
void product_tile(const ProductTile<Element>& tile, std::size_t row, std::size_t column) {
  using F = typename Simd::F;
  constexpr std::size_t kLanes = Simd::kLanes;
  const float* const x = tile.x + row * tile.x_stride;
  float* const out = tile.out + row * tile.out_stride;
  const Element* start[C];
  LEMMA_UNROLL
  for (std::size_t c = 0; c < C; ++c) {
    const std::size_t at = column + c * kLanes;
    start[c] = tile.panel + at / kPanelRows * tile.panel_stride + at % kPanelRows;
  }
  // The first tile of rows asks for a line in 32 columns.
  constexpr std::size_t kLineColumns = 32, kVectors = kLineColumns / kLanes;
  const bool ask = kLanes > 1 && tile.ahead.first != nullptr && row == 0 &&
                   (C >= kVectors || column % kLineColumns == 0);
  F sum[R][C];
  LEMMA_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    LEMMA_UNROLL
    for (std::size_t c = 0; c < C; ++c) {
      sum[r][c] = tile.accumulate ? load_columns<Simd>(out + r * tile.out_stride,
                                                       column + c * kLanes, tile.columns)
                                  : Simd::zero();
    }
  }
  for (std::size_t k = 0; k < tile.k; ++k) {
    F w[C];
    LEMMA_UNROLL
    for (std::size_t c = 0; c < C; ++c) {
      w[c] = Simd::load(start[c] + k * tile.k_stride);
      if (ask && c % kVectors == 0) {
        ask_for<Simd>(tile.ahead, k, column / kLineColumns + c / kVectors);
      }
      // 2 KiB ahead: the distance at which one core reads memory fastest.
      if constexpr (R == 1 && kLanes > 1) {
        if (tile.ahead.first == nullptr)
          __builtin_prefetch(start[c] + k * tile.k_stride + 2048 / sizeof(Element));
      }
    }
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      const F value = Simd::set(x[r * tile.x_stride + k]);
      LEMMA_UNROLL
      for (std::size_t c = 0; c < C; ++c) sum[r][c] = Simd::fma(w[c], value, sum[r][c]);
    }
  }
  LEMMA_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    LEMMA_UNROLL
    for (std::size_t c = 0; c < C; ++c) {
      store_columns<Simd>(out + r * tile.out_stride, sum[r][c], column + c * kLanes, tile.columns);
    }
  }
}

/// All rows against the columns from `column` on, C vectors of them.
template <typename Simd, std::size_t C, typename Element>
void product_columns(const ProductTile<Element>& tile, std::size_t rows, std::size_t column) {
  std::size_t row = 0;
  if constexpr (Simd::kProductRows >= 8) {
    // Eight rows of two vectors are 16 sums; two vectors of weights and one value beside them.
    for (; row + 8 <= rows; row += 8) {
      LEMMA_UNROLL
      for (std::size_t c = 0; c < C; c += 2) {
        product_tile<Simd, 8, (C < 2 ? C : 2)>(tile, row, column + c * Simd::kLanes);
      }
    }
  }
  if constexpr (Simd::kProductRows >= 4) {
    constexpr std::size_t kStep = C < Simd::kProductColumns4 ? C : Simd::kProductColumns4;
    for (; row + 4 <= rows; row += 4) {
      LEMMA_UNROLL
      for (std::size_t c = 0; c < C; c += kStep) {
        product_tile<Simd, 4, kStep>(tile, row, column + c * Simd::kLanes);
      }
    }
  }
  if constexpr (Simd::kProductRows >= 2) {
    for (; row + 2 <= rows; row += 2) product_tile<Simd, 2, C>(tile, row, column);
  }
  for (; row < rows; ++row) product_tile<Simd, 1, C>(tile, row, column);
}

template <typename Simd, typename Element>
void product_panels(const ProductTile<Element>& tile, std::size_t rows) {
  constexpr std::size_t kStep = 4 * Simd::kLanes;
  const std::size_t readable = (tile.columns + kPanelRows - 1) / kPanelRows * kPanelRows;
  std::size_t column = 0;
  for (; column + kStep <= readable; column += kStep) product_columns<Simd, 4>(tile, rows, column);
  for (; column < tile.columns; column += Simd::kLanes) {
    product_columns<Simd, 1>(tile, rows, column);
  }
}

template <typename Simd>
void product(const ProductJob& job) {
  product_panels<Simd>(
      ProductTile<float>{job.panel, job.k_stride, job.panel_stride, job.k, job.x, job.x_stride,
                         job.out, job.out_stride, job.columns, job.accumulate, job.ahead},
      job.rows);
}

template <typename Simd, typename Element>
void product_16(const ProductJob& job) {
  product_panels<Simd>(
      ProductTile<Element>{reinterpret_cast<const Element*>(job.panel16), job.k_stride,
                           job.panel_stride, job.k, job.x, job.x_stride, job.out, job.out_stride,
                           job.columns, job.accumulate, job.ahead},
      job.rows);
}

}  // namespace lemma::cpu
