// SPDX-License-Identifier: Apache-2.0
// Entered rows against F16 and BF16 weights by vdpbf16ps: what the level avx512bf16 adds to avx512.
// Activations, and weights that are F16, are rounded to bf16, to the nearest. Each output is one
// chain in steps of two columns:
//
//   sum = 0; for k = 0, 2, ..: sum = fma(w[k + 1], x[k + 1], sum); sum = fma(w[k], x[k], sum)
//
// where subnormal numbers are taken for zeros, before the rounding too, and zeros are made of them.
// A column that is missing at the end counts as zero. Neither the tile nor the blocks of columns
// change that order.
#include <immintrin.h>

#include "backend/cpu/kernels/product.hpp"

namespace lemma::cpu {
namespace {
namespace avx512bf16 {

using F = __m512;
using Pairs = __m512i;  ///< 16 outputs, or 16 times the same, of two columns

constexpr std::size_t kColumns = 1024;  ///< that are rounded and expanded at a time
constexpr std::size_t kPairs = kColumns / 2;
constexpr std::size_t kTall = 8;      ///< rows of a tile
constexpr std::size_t kTogether = 4;  ///< panels that are multiplied with rounded rows
constexpr std::size_t kExpandFrom =
    16;  ///< rows from which panels are expanded. No bits depend on it.

Pairs from_floats(F even, F odd) {
  const __m512bh halves = _mm512_cvtne2ps_pbh(odd, even);  // even columns in the lower half
  Pairs bits;
  __builtin_memcpy(&bits, &halves, sizeof bits);
  return bits;
}

/// 16 outputs of one column beside 16 of the next: into pairs.
Pairs interleave(Pairs columns) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), columns);
}

/// Panels as they lie, [K][16] elements.
template <typename Element>
struct Packed;

template <>
struct Packed<BF16> {
  const std::byte* at;
  Pairs pair(std::size_t p) const { return interleave(_mm512_loadu_si512(at + p * 64)); }
  /// The last column, alone.
  Pairs single(std::size_t p) const {
    return interleave(_mm512_maskz_loadu_epi64(0x0f, at + p * 64));
  }
};

template <>
struct Packed<F16> {
  const std::byte* at;
  static F column(const std::byte* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  Pairs pair(std::size_t p) const {
    return interleave(from_floats(column(at + p * 64), column(at + p * 64 + 32)));
  }
  Pairs single(std::size_t p) const {
    return interleave(from_floats(column(at + p * 64), _mm512_setzero_ps()));
  }
};

/// A panel's pairs of some columns, expanded.
struct Expanded {
  alignas(64) std::byte pairs[kPairs * 64];
  Pairs pair(std::size_t p) const { return _mm512_load_si512(pairs + p * 64); }
};

/// Rows rounded, in pairs; a last column stands beside zero.
struct RoundedRows {
  alignas(64) std::uint32_t pairs[kTall][kPairs];
};

void round_row(const float* x, std::size_t columns, std::uint32_t* to) {
  // The halves of a vector of pairs are its first and its last 16 columns, so both come from the
  // same place and keep their order.
  const auto store = [&](std::size_t k, F low, F high) {
    _mm512_storeu_si512(to + k / 2, from_floats(low, high));
  };
  std::size_t k = 0;
  for (; k + 32 <= columns; k += 32) store(k, _mm512_loadu_ps(x + k), _mm512_loadu_ps(x + k + 16));
  if (k == columns) return;
  const std::size_t left = columns - k;
  const auto some = [](std::size_t n) { return static_cast<__mmask16>((1u << n) - 1u); };
  const F low = _mm512_maskz_loadu_ps(some(left < 16 ? left : 16), x + k);
  const F high = left > 16 ? _mm512_maskz_loadu_ps(some(left - 16), x + k + 16) : F{};
  store(k, low, high);
}

F add(F sum, Pairs w, Pairs x) {
  __m512bh a, b;
  __builtin_memcpy(&a, &w, sizeof a);
  __builtin_memcpy(&b, &x, sizeof b);
  return _mm512_dpbf16_ps(sum, a, b);
}

/// What a tile multiplies: columns [first, first + columns) of rows and panels.
struct Block {
  std::size_t first, columns;
};

struct Simd {  // for store_columns
  static constexpr std::size_t kLanes = 16;
  using F = __m512;
  static F load(const float* x) { return _mm512_loadu_ps(x); }
  static void store(float* out, F x) { _mm512_storeu_ps(out, x); }
};

/// What a tile asks for while it multiplies: memory ahead of packed panels, in bytes, or four rows
/// that are to be rounded next, which lie in a cache further away.
struct Asked {
  std::ptrdiff_t panels = 0;
  const float* rows = nullptr;
  std::size_t stride = 0;

  void ask_for_rows(std::size_t k) const {
    constexpr std::size_t kLines = kColumns / 16;  // of a row
    if (rows == nullptr || k % 2 != 0) return;
    __builtin_prefetch(rows + k / 2 / kLines * stride + k / 2 % kLines * 16);
  }
};

template <std::size_t R, std::size_t P>
void begin_sums(const ProjectJob& job, const Block& block, std::size_t row, std::size_t output,
                F (&sum)[R][P]) {
  LEMMA_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      const float* const out = job.out + (row + r) * job.out_stride;
      sum[r][p] =
          block.first == 0 ? F{} : load_columns<Simd>(out, output + p * kPanelRows, job.outputs);
    }
  }
}

template <std::size_t R, std::size_t P>
void store_sums(const ProjectJob& job, std::size_t row, std::size_t output, const F (&sum)[R][P]) {
  LEMMA_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      store_columns<Simd>(job.out + (row + r) * job.out_stride, sum[r][p], output + p * kPanelRows,
                          job.outputs);
    }
  }
}

/// R rows by P panels from output `output` on; goes on from what the outputs hold.
template <std::size_t R, std::size_t P, typename Panel>
void tile(const ProjectJob& job, const Block& block, const Panel* const (&panels)[P],
          const RoundedRows& rows, std::size_t row, std::size_t output, const Asked& asked) {
  F sum[R][P];
  begin_sums(job, block, row, output, sum);
  const auto step = [&](std::size_t k, const Pairs(&w)[P]) {
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      const Pairs x = _mm512_set1_epi32(static_cast<int>(rows.pairs[r][k]));
      LEMMA_UNROLL
      for (std::size_t p = 0; p < P; ++p) sum[r][p] = add(sum[r][p], w[p], x);
    }
  };
  Pairs w[P];
  std::size_t k = 0;
  for (; k < block.columns / 2; ++k) {
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      w[p] = panels[p]->pair(k);
      if constexpr (requires { panels[p]->at; }) {
        if (asked.panels != 0) __builtin_prefetch(panels[p]->at + k * 64 + asked.panels);
      }
    }
    if constexpr (P == 2) asked.ask_for_rows(k);
    step(k, w);
  }
  if (block.columns % 2 != 0) {
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      if constexpr (requires { panels[p]->at; }) {
        w[p] = panels[p]->single(k);
      } else {
        w[p] = panels[p]->pair(k);
      }
    }
    step(k, w);
  }
  store_sums(job, row, output, sum);
}

template <typename Element>
void expand(const Packed<Element>& panel, std::size_t columns, Expanded& to) {
  std::size_t k = 0;
  for (; k < columns / 2; ++k) {
    __builtin_prefetch(panel.at + k * 64 + 4096);
    _mm512_store_si512(to.pairs + k * 64, panel.pair(k));
  }
  if (columns % 2 != 0) _mm512_store_si512(to.pairs + k * 64, panel.single(k));
}

/// One block of columns of up to kTogether panels from output `first` on, for all rows.
template <typename Element>
void project_block(const ProjectJob& job, const Block& block, std::size_t first) {
  const std::size_t left = (job.outputs - first + kPanelRows - 1) / kPanelRows;
  const std::size_t count = left < kTogether ? left : kTogether;
  const bool expanding = job.rows >= kExpandFrom;
  Packed<Element> packed[kTogether];
  Expanded expanded[kTogether];
  for (std::size_t p = 0; p < count; ++p) {
    packed[p].at =
        job.panels + (first / kPanelRows + p) * job.panel_bytes + block.first * kPanelRows * 2;
    if (expanding) expand(packed[p], block.columns, expanded[p]);
  }
  RoundedRows rows;
  std::size_t row = 0;
  const auto tiles = [&]<std::size_t R>() {
    for (; row + R <= job.rows; row += R) {
      for (std::size_t r = 0; r < R; ++r) {
        round_row(job.x + (row + r) * job.x_stride + block.first, block.columns, rows.pairs[r]);
      }
      for (std::size_t p = 0; expanding && p < count; p += 2) {
        // Beside a last panel stands the same once more, whose outputs are not there.
        const Expanded* const two[2] = {expanded + p, expanded + (p + 1 < count ? p + 1 : p)};
        Asked asked;
        if (row + R + kTall <= job.rows) {  // the first two panels ask for the upper rows
          asked = {0, job.x + (row + R + p * 2) * job.x_stride + block.first, job.x_stride};
        }
        tile<R, 2>(job, block, two, rows, row, first + p * kPanelRows, asked);
      }
      for (std::size_t p = 0; !expanding && p < count; ++p) {
        const Packed<Element>* const one[1] = {packed + p};
        tile<R, 1>(job, block, one, rows, row, first + p * kPanelRows, {row == 0 ? 4096 : 0});
      }
    }
  };
  tiles.template operator()<kTall>();
  tiles.template operator()<4>();
  tiles.template operator()<2>();
  tiles.template operator()<1>();
}

template <typename Element>
void project(const ProjectJob& job) {
  for (std::size_t first = 0; first < job.outputs; first += kTogether * kPanelRows) {
    for (std::size_t k = 0; k < job.cols; k += kColumns) {
      const Block block{k, job.cols - k < kColumns ? job.cols - k : kColumns};
      project_block<Element>(job, block, first);
    }
  }
}

}  // namespace avx512bf16
}  // namespace

constinit const EnteredKernels kAvx512Bf16Kernels = {
    "avx512bf16", {nullptr, avx512bf16::project<F16>, avx512bf16::project<BF16>}};

}  // namespace lemma::cpu
