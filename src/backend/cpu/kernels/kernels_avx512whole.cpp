// SPDX-License-Identifier: Apache-2.0
// Entered rows against F16 and BF16 weights in whole numbers, by vpdpwssd: see project_whole.hpp.
// Weights are taken apart into codes and scales some columns at a time, which stay in the second
// cache; tiles of up to twelve rows by two panels then do nothing but multiply.
#include <immintrin.h>

#include "backend/cpu/kernels/product.hpp"
#include "backend/cpu/kernels/project_whole.hpp"
#include "backend/cpu/kernels/whole_avx512.hpp"

namespace lemma::cpu {
namespace {
namespace avx512whole {

using namespace whole;

constexpr std::size_t kColumns = 512;  ///< that are expanded at a time for many rows
/// And for few, two panels at a time: they stay in the first cache.
constexpr std::size_t kFewColumns = 128;
constexpr std::size_t kBlocks = kColumns / kWholeColumns;
constexpr std::size_t kTall = 12;     ///< rows of a tile
constexpr std::size_t kTogether = 4;  ///< panels that are multiplied with the same rows
constexpr float kMost = 4095.f;
constexpr float kTiny = 0x1p-100f;
/// Added to a number below 2^22 it leaves the nearest whole number in the lower bits.
constexpr float kWholePart = 0x1.8p23f;

/// From numbers to codes and back, by the largest magnitude.
struct Scales {
  F inverse, step;
  explicit Scales(F largest) {
    const __mmask16 counts = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(kTiny), _CMP_NLT_UQ);
    inverse = _mm512_maskz_div_ps(counts, _mm512_set1_ps(kMost), largest);
    step = _mm512_maskz_div_ps(counts, largest, _mm512_set1_ps(kMost));
  }
};

/// Codes in the lower halves.
I codes(F x, F inverse) {
  return _mm512_castps_si512(_mm512_fmadd_ps(x, inverse, _mm512_set1_ps(kWholePart)));
}

/// The lower half of each lane of `even` with that of `odd` in its upper half.
I beside(I even, I odd) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {
      0,  32, 2,  34, 4,  36, 6,  38, 8,  40, 10, 42, 12, 44, 14, 46,
      16, 48, 18, 50, 20, 52, 22, 54, 24, 56, 26, 58, 28, 60, 30, 62};
  return _mm512_permutex2var_epi16(even, _mm512_load_si512(kOrder), odd);
}
/// The lower halves of `low`, and then those of `high`.
I behind(I low, I high) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {
      0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
      32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  return _mm512_permutex2var_epi16(low, _mm512_load_si512(kOrder), high);
}

/// Two columns of 16 weights.
struct Columns {
  F even, odd;
};
Columns widen(F16, I both) {
  return {_mm512_cvtph_ps(_mm512_castsi512_si256(both)),
          _mm512_cvtph_ps(_mm512_extracti64x4_epi64(both, 1))};
}
Columns widen(BF16, I both) {
  return {widen_bf16(_mm512_castsi512_si256(both)), widen_bf16(_mm512_extracti64x4_epi64(both, 1))};
}

/// Some columns of a panel.
struct Expanded {
  alignas(64) std::byte pairs[kColumns / 2 * 64];  ///< [columns / 2][16] pairs
  alignas(64) float scales[kBlocks * 16];
};

/// Two columns of a panel [K][16] of 16 bits each, of which the second may be missing.
I load_columns(const std::byte* at, std::size_t columns) {
  return columns >= 2 ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi64(0x0f, at);
}

template <typename Element>
void expand_block(const std::byte* at, std::size_t columns, std::byte* pairs, float* scales) {
  constexpr std::size_t kAhead = 4096;
  I most = _mm512_setzero_si512();
  for (std::size_t k = 0; k < columns; k += 2) {
    __builtin_prefetch(at + k * 32 + kAhead);
    const I sizes =
        _mm512_and_si512(load_columns(at + k * 32, columns - k), _mm512_set1_epi16(0x7fff));
    most = _mm512_max_epu16(most, sizes);  // 16-bit floats order like their bits
  }
  const __m256i both =
      _mm256_max_epu16(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
  const Scales by(widen(Element{}, _mm512_zextsi256_si512(both)).even);
  _mm512_store_ps(scales, by.step);
  for (std::size_t k = 0; k < columns; k += 2) {
    const Columns w = widen(Element{}, load_columns(at + k * 32, columns - k));
    _mm512_store_si512(pairs + k * 32, beside(codes(w.even, by.inverse), codes(w.odd, by.inverse)));
  }
}

template <typename Element>
void expand(const std::byte* at, std::size_t columns, Expanded& to) {
  for (std::size_t k = 0; k < columns; k += kWholeColumns) {
    const std::size_t some = columns - k < kWholeColumns ? columns - k : kWholeColumns;
    expand_block<Element>(at + k * 32, some, to.pairs + k * 32, to.scales + k / kWholeColumns * 16);
  }
}

/// Rounds a row; see project_whole.hpp for how it lies.
void round_row(const float* x, std::size_t columns, std::byte* row) {
  std::byte* scale = row + whole_scales_at(columns);
  for (std::size_t first = 0; first < columns; first += kWholeColumns, scale += sizeof(float)) {
    const std::size_t end = columns - first < kWholeColumns ? columns : first + kWholeColumns;
    const std::int32_t bits = largest_of(x + first, end - first);
    float largest;
    __builtin_memcpy(&largest, &bits, sizeof largest);
    const bool none = largest < kTiny;
    const float step = none ? 0.f : largest / kMost;
    const F inverse = _mm512_set1_ps(none ? 0.f : kMost / largest);
    __builtin_memcpy(scale, &step, sizeof step);
    std::size_t k = first;
    for (; k + 32 <= end; k += 32) {
      _mm512_storeu_si512(row + k * 2, behind(codes(_mm512_loadu_ps(x + k), inverse),
                                              codes(_mm512_loadu_ps(x + k + 16), inverse)));
    }
    if (k == end) continue;
    const std::size_t left = end - k;
    const F low = _mm512_maskz_loadu_ps(first_lanes(left), x + k);
    const F high = left > 16 ? _mm512_maskz_loadu_ps(first_lanes(left - 16), x + k + 16) : F{};
    _mm512_storeu_si512(row + k * 2, behind(codes(low, inverse), codes(high, inverse)));
  }
}

/// Rounded rows, from some column on.
struct Rows {
  const std::byte* codes;
  const std::byte* scales;
  std::size_t stride;  ///< bytes, of both
};

/// Where a tile's outputs are, [R][32] floats; it goes on from what they hold.
struct Outputs {
  float* first;
  std::size_t stride;
};

void go_on(float* out, Sums sums, F scale) {
  _mm512_storeu_ps(out, _mm512_fmadd_ps(to_float(sums), scale, _mm512_loadu_ps(out)));
}

/// R rows by two panels, block by block. Asks for as many rows of `ahead`, if it is not null. Not
/// inlined, for the compiler's sake (int8_tile.hpp).
template <std::size_t R>
[[gnu::noinline]] void tile(const Expanded* const (&panels)[2], std::size_t columns,
                            const Rows& rows, const Outputs& out, const std::byte* ahead) {
  const std::size_t stride = rows.stride;
  for (std::size_t first = 0; first < columns; first += kWholeColumns) {
    const std::size_t left = columns - first, block = first / kWholeColumns;
    const std::size_t steps = ((left < kWholeColumns ? left : kWholeColumns) + 1) / 2;
    const std::byte* const codes = rows.codes + first * 2;
    const std::byte* const upper = panels[0]->pairs + first * 32;
    const std::byte* const lower = panels[1]->pairs + first * 32;
    Sums sum[R][2];
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) sum[r][0] = sum[r][1] = Sums{};
    for (std::size_t k = 0; k < steps; ++k) {
      if (ahead != nullptr && k < 4 * R) {  // four lines a row have 128 columns
        __builtin_prefetch(ahead + first * 2 + k / 4 * stride + k % 4 * 64);
      }
      const I a = _mm512_load_si512(upper + k * 64), b = _mm512_load_si512(lower + k * 64);
      LEMMA_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        std::int32_t pair;
        __builtin_memcpy(&pair, codes + r * stride + k * 4, sizeof pair);
        const I x = _mm512_set1_epi32(pair);
        sum[r][0] = add(sum[r][0], a, x);
        sum[r][1] = add(sum[r][1], b, x);
      }
    }
    const F a = _mm512_load_ps(panels[0]->scales + block * 16);
    const F b = _mm512_load_ps(panels[1]->scales + block * 16);
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      float scale;
      __builtin_memcpy(&scale, rows.scales + r * stride + block * sizeof scale, sizeof scale);
      float* const to = out.first + r * out.stride;
      go_on(to, sum[r][0], _mm512_mul_ps(a, _mm512_set1_ps(scale)));
      go_on(to + kPanelRows, sum[r][1], _mm512_mul_ps(b, _mm512_set1_ps(scale)));
    }
  }
}

using Tile = void (*)(const Expanded* const (&)[2], std::size_t, const Rows&, const Outputs&,
                      const std::byte*);
constexpr Tile kTiles[kTall] = {tile<1>, tile<2>, tile<3>, tile<4>,  tile<5>,  tile<6>,
                                tile<7>, tile<8>, tile<9>, tile<10>, tile<11>, tile<12>};

/// What is multiplied: columns [first, first + columns) with up to kTogether panels.
struct Run {
  std::size_t first, columns;
  std::size_t output;  ///< the first of them
};

/// Rows of a tile that nobody has rounded before.
struct Rounded {
  alignas(64) std::byte rows[kTall * whole_row_bytes(kColumns)];
  Rows round(const ProjectJob& job, const Run& run, std::size_t row, std::size_t count) {
    constexpr std::size_t kStride = whole_row_bytes(kColumns);
    for (std::size_t r = 0; r < count; ++r) {
      round_row(job.x + (row + r) * job.x_stride + run.first, run.columns, rows + r * kStride);
    }
    return {rows, rows + whole_scales_at(run.columns), kStride};
  }
};

/// The rows [row, row + count) of a run, rounded before or here.
Rows rows_of(const ProjectJob& job, const Run& run, std::size_t row, std::size_t count,
             Rounded& rounded) {
  if (job.quantized.whole == nullptr) return rounded.round(job, run, row, count);
  const std::size_t stride = whole_row_bytes(job.cols);
  const std::byte* const at = job.quantized.whole + row * stride;
  const std::size_t scale = run.first / kWholeColumns * sizeof(float);
  return {at + run.first * 2, at + whole_scales_at(job.cols) + scale, stride};
}

/// `count` rows by two panels from output `output` on, of which some may not be there.
void multiply(const ProjectJob& job, const Run& run, const Expanded* const (&panels)[2],
              const Rows& rows, std::size_t row, std::size_t count, std::size_t output,
              const std::byte* ahead) {
  constexpr std::size_t kWidth = 2 * kPanelRows;
  const std::size_t width = job.outputs - output < kWidth ? job.outputs - output : kWidth;
  float* const to = job.out + row * job.out_stride + output;
  if (run.first == 0) {
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t i = 0; i < width; ++i) to[r * job.out_stride + i] = 0.f;
    }
  }
  if (width == kWidth) {
    return kTiles[count - 1](panels, run.columns, rows, {to, job.out_stride}, ahead);
  }
  alignas(64) float edge[kTall * kWidth] = {};
  copy_columns<Run>(to, job.out_stride, edge, kWidth, count, width);
  kTiles[count - 1](panels, run.columns, rows, {edge, kWidth}, ahead);
  copy_columns<Run>(edge, kWidth, to, job.out_stride, count, width);
}

/// All rows with expanded panels, of which `count` are there.
void multiply_all(const ProjectJob& job, const Run& run, const Expanded* panels,
                  std::size_t count) {
  Rounded rounded;
  std::size_t row = 0;
  for (std::size_t tiles = (job.rows + kTall - 1) / kTall; tiles > 0; --tiles) {
    const std::size_t height = (job.rows - row + tiles - 1) / tiles;
    const Rows rows = rows_of(job, run, row, height, rounded);
    const bool next = job.quantized.whole != nullptr && tiles > 1;
    for (std::size_t p = 0; p < count; p += 2) {
      // Beside a last panel stands the same once more, whose outputs are not there.
      const Expanded* const two[2] = {panels + p, panels + (p + 1 < count ? p + 1 : p)};
      multiply(job, run, two, rows, row, height, run.output + p * kPanelRows,
               next && p == 0 ? rows.codes + height * rows.stride : nullptr);
    }
    row += height;
  }
}

template <typename Element>
void project(const ProjectJob& job) {
  const bool few = job.rows <= kTall;
  const std::size_t most = few ? kFewColumns : kColumns, together = few ? 2 : kTogether;
  Expanded expanded[kTogether];
  for (std::size_t output = 0; output < job.outputs; output += together * kPanelRows) {
    const std::size_t left = (job.outputs - output + kPanelRows - 1) / kPanelRows;
    const std::size_t count = left < together ? left : together;
    for (std::size_t k = 0; k < job.cols; k += most) {
      const Run run{k, job.cols - k < most ? job.cols - k : most, output};
      for (std::size_t p = 0; p < count; ++p) {
        const std::byte* const panel = job.panels + (output / kPanelRows + p) * job.panel_bytes;
        expand<Element>(panel + k * kPanelRows * 2, run.columns, expanded[p]);
      }
      multiply_all(job, run, expanded, count);
    }
  }
}

}  // namespace avx512whole
}  // namespace

constinit const EnteredKernels kAvx512WholeKernels = {
    .name = "avx512",
    .project = {nullptr, avx512whole::project<F16>, avx512whole::project<BF16>},
    .round_whole = avx512whole::round_row};

}  // namespace lemma::cpu
