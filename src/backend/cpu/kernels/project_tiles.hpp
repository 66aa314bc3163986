// SPDX-License-Identifier: Apache-2.0
// Entered rows against weights of any layout on matrix tiles of bf16 (AMX). `Tiles` is the unit
// that multiplies: the instructions in kernels_amx.cpp, their published definition in plain C++ in
// tiles_emulated.hpp, by which all of this is tested on any machine.
//
// Activations are rounded to bf16, to the nearest. Weights are widened or decoded to f32, (code -
// offset) * scale - minimum, and rounded to bf16. Then per 32 columns, from the first on:
//
//   even = odd = 0; for k = 0, 2, .. 30: even = fma(x[k], w[k], even); odd = fma(x[k + 1], w[k +
//   1], odd);  sum = sum + (even + odd)
//
// which is what one TDPBF16PS does to each element of its tile; it takes subnormal numbers for
// zeros and makes zeros of them. Columns that are missing at the end count as zero. A row's bits do
// not depend on the tile's height, and sums wait in the outputs between blocks of columns.
//
// Weights are expanded once for all rows of a job. Rows are rounded once for all products that read
// them (QuantizedRows::bf16); only 16-bit floats may meet rows that are not, which are rounded
// here.
#pragma once

#include "backend/cpu/kernels/product.hpp"

namespace lemma::cpu {

inline constexpr std::size_t kTileRows = 16, kTileBytes = 1024;
inline constexpr std::size_t kStep = 32;  ///< columns of a tile product

/// Of a block: columns that are expanded at a time, in groups of one step.
inline constexpr std::size_t kTileSteps = 16, kTileColumns = kTileSteps * kStep;
inline constexpr std::size_t kTilePanels = 4;  ///< that are multiplied with rounded rows

template <typename Tiles>
struct EnteredJob {
  const ProjectJob& job;
  const ExpandKernel* quantized;  ///< how the panels are expanded; null: 16-bit floats
  bool bf16;                      ///< of those: BF16
};

/// Rounds to the nearest bf16, ties to even; NaN stays NaN.
template <typename Tiles>
inline std::uint32_t to_bf16(float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  return ((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : rounded) >> 16;
}

template <typename Tiles>
inline float from_f16(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  // With f16's exponent in f32's place the number is 2^112 too small, subnormals included.
  const float scaled = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;
  const std::uint32_t special = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, scaled);
  return __builtin_bit_cast(float, sign | (magnitude >= 0x7c00u ? special : bits));
}

/// One step of a panel: 16 pairs of columns x 16 outputs x 2.
struct WeightTile {
  alignas(64) std::uint32_t pairs[16][kPanelRows];
};

/// Where a decoded group has its numbers: for each half of 16 columns.
struct GroupNumbers {
  const float* scales[2];
  const float* minimums[2];  ///< null: none
};

template <typename Tiles>
void fill_tile(const std::byte* codes, std::int32_t offset, const GroupNumbers& numbers,
               WeightTile& to) {
  // A signed byte is (byte ^ 128) - 128 of an unsigned one.
  const std::uint32_t flip = offset == 0 ? 128u : 0u;
  const std::int32_t over = offset == 0 ? 128 : offset;
  static constexpr float kNone[kPanelRows] = {};
  for (std::size_t pair = 0; pair < 16; ++pair) {
    const std::size_t quad = pair / 2, half = pair / 8;
    const unsigned shift = pair % 2 * 16;
    const float* const scale = numbers.scales[half];
    const float* const minimum = numbers.minimums[half] ? numbers.minimums[half] : kNone;
    std::uint32_t words[kPanelRows];
    __builtin_memcpy(words, codes + quad * 64, sizeof words);
    for (std::size_t o = 0; o < kPanelRows; ++o) {
      const std::uint32_t two = words[o] >> shift;
      const auto low = static_cast<std::int32_t>((two & 0xffu) ^ flip) - over;
      const auto high = static_cast<std::int32_t>((two >> 8 & 0xffu) ^ flip) - over;
      const float a = static_cast<float>(low) * scale[o] - minimum[o];
      const float b = static_cast<float>(high) * scale[o] - minimum[o];
      to.pairs[pair][o] = to_bf16<Tiles>(a) | to_bf16<Tiles>(b) << 16;
    }
  }
}

/// Steps [begin, end) of a quantized panel.
template <typename Tiles>
void expand_quantized(const ExpandKernel& kernel, const std::byte* panel, std::size_t cols,
                      std::size_t begin, std::size_t end, WeightTile* to) {
  ExpandedPanel expanded;
  kernel.expand(panel, cols, begin, end, expanded);
  for (std::size_t g = 0; g < end - begin; ++g) {
    GroupNumbers numbers{};
    float minimums[2][kPanelRows];
    for (std::size_t half = 0; half < 2; ++half) {
      const std::size_t number = kernel.folded ? g / 8 : g * kernel.parts + half % kernel.parts;
      numbers.scales[half] = expanded.scales + number * kPanelRows;
      if (!kernel.minimum) continue;
      for (std::size_t o = 0; o < kPanelRows; ++o) {
        std::int16_t units[2] = {1, 1};
        if (kernel.folded) {
          __builtin_memcpy(units, expanded.pairs + (g * kPanelRows + o) * 4, sizeof units);
        }
        const std::size_t at = (kernel.folded ? g / 8 : g) * kPanelRows + o;
        minimums[half][o] = static_cast<float>(units[half]) * expanded.minimums[at];
      }
      numbers.minimums[half] = minimums[half];
    }
    fill_tile<Tiles>(expanded.codes + g * 512, kernel.offset, numbers, to[g]);
  }
}

/// Columns [first, first + columns) of a panel of 16-bit floats, [K][16].
template <typename Tiles>
void expand_floats(const std::byte* panel, bool bf16, std::size_t first, std::size_t columns,
                   WeightTile* to) {
  for (std::size_t k = 0; k < (columns + kStep - 1) / kStep * kStep; k += 2) {
    std::uint16_t two[2][kPanelRows] = {};
    const std::size_t there = columns <= k ? 0 : columns - k < 2 ? columns - k : 2;
    __builtin_memcpy(two, panel + (first + k) * kPanelRows * 2, there * kPanelRows * 2);
    std::uint32_t(&pairs)[kPanelRows] = to[k / kStep].pairs[k % kStep / 2];
    for (std::size_t o = 0; o < kPanelRows; ++o) {
      pairs[o] = bf16 ? two[0][o] | std::uint32_t{two[1][o]} << 16
                      : to_bf16<Tiles>(from_f16<Tiles>(two[0][o])) |
                            to_bf16<Tiles>(from_f16<Tiles>(two[1][o])) << 16;
    }
  }
}

/// Up to 32 rows of some columns, rounded, which lie by tiles: where they come from, rows whose
/// distance is a power of two share few lines of the first cache.
struct TileRowsBlock {
  alignas(64) std::uint16_t x[kTileSteps][2 * kTileRows][kStep];
};

/// Takes rows that are rounded, or rounds them. What is missing in a last step is zero.
template <typename Tiles>
void take_rows(const ProjectJob& job, std::size_t row, std::size_t rows, std::size_t first,
               std::size_t columns, TileRowsBlock& to) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t k = 0; k < columns; k += kStep) {
      std::uint16_t(&x)[kStep] = to.x[k / kStep][r];
      const std::size_t count = columns - k < kStep ? columns - k : kStep;
      if (count < kStep) __builtin_memset(x, 0, sizeof x);
      if (job.quantized.bf16 != nullptr) {
        __builtin_memcpy(x, job.quantized.bf16 + (row + r) * job.cols + first + k, count * 2);
        continue;
      }
      const float* const from = job.x + (row + r) * job.x_stride + first + k;
      for (std::size_t i = 0; i < count; ++i) {
        x[i] = static_cast<std::uint16_t>(to_bf16<Tiles>(from[i]));
      }
    }
  }
}

/// Rows of the two tiles of activations: 16 and 16, or what is left.
struct Heights {
  std::size_t upper, lower;
};

/// Adds `steps` steps of two panels to sums [rows][32], which begin at zero if `fresh`.
template <typename Tiles>
void multiply_tiles(Tiles& tiles, const TileRowsBlock& rows, const Heights& heights,
                    const WeightTile* left, const WeightTile* right, std::size_t steps, bool fresh,
                    float* sums, std::size_t stride) {
  float* const lower = sums + kTileRows * stride;
  const bool two = heights.lower > 0;
  if (fresh) {
    tiles.template zero<0>();
    tiles.template zero<1>();
    if (two) tiles.template zero<2>();
    if (two) tiles.template zero<3>();
  } else {
    tiles.template load<0>(sums, stride * 4);
    tiles.template load<1>(sums + kPanelRows, stride * 4);
    if (two) tiles.template load<2>(lower, stride * 4);
    if (two) tiles.template load<3>(lower + kPanelRows, stride * 4);
  }
  for (std::size_t s = 0; s < steps; ++s) {
    tiles.template load<6>(left + s, 64);
    tiles.template load<7>(right + s, 64);
    tiles.template load<4>(rows.x[s][0], kStep * 2);
    tiles.template add_product<0, 4, 6>();
    tiles.template add_product<1, 4, 7>();
    if (!two) continue;
    tiles.template load<5>(rows.x[s][kTileRows], kStep * 2);
    tiles.template add_product<2, 5, 6>();
    tiles.template add_product<3, 5, 7>();
  }
  tiles.template store<0>(sums, stride * 4);
  tiles.template store<1>(sums + kPanelRows, stride * 4);
  if (two) tiles.template store<2>(lower, stride * 4);
  if (two) tiles.template store<3>(lower + kPanelRows, stride * 4);
}

/// Two panels from output `output` on. Where fewer outputs are there, the sums are kept apart.
template <typename Tiles>
void multiply_outputs(Tiles& tiles, const ProjectJob& job, const TileRowsBlock& rows,
                      const Heights& heights, std::size_t row, const WeightTile* left,
                      const WeightTile* right, std::size_t steps, bool fresh, std::size_t output) {
  constexpr std::size_t kWidth = 2 * kPanelRows;
  float* const out = job.out + row * job.out_stride + output;
  if (output + kWidth <= job.outputs) {
    multiply_tiles(tiles, rows, heights, left, right, steps, fresh, out, job.out_stride);
    return;
  }
  const std::size_t count = job.outputs - output;
  alignas(64) float sums[2 * kTileRows * kWidth] = {};
  const std::size_t height = heights.upper + heights.lower;
  for (std::size_t r = 0; r < height && !fresh; ++r) {
    for (std::size_t o = 0; o < count; ++o) sums[r * kWidth + o] = out[r * job.out_stride + o];
  }
  multiply_tiles(tiles, rows, heights, left, right, steps, fresh, sums, kWidth);
  for (std::size_t r = 0; r < height; ++r) {
    for (std::size_t o = 0; o < count; ++o) out[r * job.out_stride + o] = sums[r * kWidth + o];
  }
}

/// The rows of two tiles, from `row` on.
template <typename Tiles>
Heights heights_from(const ProjectJob& job, std::size_t row) {
  const std::size_t left = job.rows - row;
  if (left < kTileRows) return {left, 0};
  return {kTileRows, (left < 2 * kTileRows ? left : 2 * kTileRows) - kTileRows};
}

/// Columns from `k` on of up to kTilePanels panels from output `first` on, for all rows.
template <typename Tiles>
void multiply_block(Tiles& tiles, const EnteredJob<Tiles>& what, std::size_t first, std::size_t k) {
  const ProjectJob& job = what.job;
  const std::size_t columns = job.cols - k < kTileColumns ? job.cols - k : kTileColumns;
  const std::size_t steps = (columns + kStep - 1) / kStep;
  const std::size_t left = (job.outputs - first + kPanelRows - 1) / kPanelRows;
  const std::size_t panels = left < kTilePanels ? left : kTilePanels;
  WeightTile weights[kTilePanels][kTileSteps];
  for (std::size_t p = 0; p < panels; ++p) {
    const std::byte* const panel = job.panels + (first / kPanelRows + p) * job.panel_bytes;
    if (what.quantized != nullptr) {
      expand_quantized<Tiles>(*what.quantized, panel, job.cols, k / kGroup, k / kGroup + steps,
                              weights[p]);
    } else {
      expand_floats<Tiles>(panel, what.bf16, k, columns, weights[p]);
    }
  }
  TileRowsBlock rows;
  for (std::size_t row = 0; row < job.rows; row += 2 * kTileRows) {
    const Heights heights = heights_from<Tiles>(job, row);
    take_rows<Tiles>(job, row, heights.upper + heights.lower, k, columns, rows);
    tiles.shape(heights.upper, heights.lower);
    for (std::size_t p = 0; p < panels; p += 2) {
      // Beside a last panel stands the same once more, whose outputs are not there.
      multiply_outputs(tiles, job, rows, heights, row, weights[p],
                       weights[p + 1 < panels ? p + 1 : p], steps, k == 0, first + p * kPanelRows);
    }
  }
}

template <typename Tiles>
void project_on_tiles(const EnteredJob<Tiles>& what) {
  Tiles tiles;
  for (std::size_t first = 0; first < what.job.outputs; first += kTilePanels * kPanelRows) {
    for (std::size_t k = 0; k < what.job.cols; k += kTileColumns) {
      multiply_block(tiles, what, first, k);
    }
  }
  tiles.release();
}

/// The kernel of one layout; `Base` is the table whose expansion it uses.
template <typename Tiles, const KernelTable& Base, WeightKernel Layout>
void project_tiles(const ProjectJob& job) {
  constexpr bool kFloats = Layout == WeightKernel::kF16 || Layout == WeightKernel::kBF16;
  project_on_tiles(
      EnteredJob<Tiles>{job, kFloats ? nullptr : &Base.expand[static_cast<std::size_t>(Layout)],
                        Layout == WeightKernel::kBF16});
}

template <typename Tiles, const KernelTable& Base, std::size_t Layout = 1>
constexpr void put_tiles(EnteredKernels& to) {
  if constexpr (Layout < kWeightKernels) {
    to.project[Layout] = project_tiles<Tiles, Base, static_cast<WeightKernel>(Layout)>;
    put_tiles<Tiles, Base, Layout + 1>(to);
  }
}

/// Rounds rows as `Base` does, and to bf16 where there is room for that.
template <typename Tiles, const KernelTable& Base>
void quantize_for_tiles(const float* x, std::size_t n, const QuantizedRows& out) {
  Base.quantize(x, n, out);
  if (out.bf16 == nullptr) return;
  for (std::size_t i = 0; i < n; ++i)
    out.bf16[i] = static_cast<std::uint16_t>(to_bf16<Tiles>(x[i]));
}

/// All layouts but F32, which has one definition for both classes.
template <typename Tiles, const KernelTable& Base>
constexpr EnteredKernels tile_kernels(const char* name) {
  EnteredKernels kernels{name, {}, quantize_for_tiles<Tiles, Base>};
  put_tiles<Tiles, Base>(kernels);
  return kernels;
}

}  // namespace lemma::cpu
