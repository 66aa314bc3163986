// SPDX-License-Identifier: Apache-2.0
// Attention of entered rows in whole numbers, by vpdpwssd: see attention_whole.hpp.
#include "backend/cpu/kernels/attention_whole.hpp"

#include <immintrin.h>

#include "backend/cpu/kernels/simd_avx512.hpp"
#include "backend/cpu/kernels/unroll.hpp"
#include "backend/cpu/kernels/whole_avx512.hpp"

namespace lemma::cpu {
namespace {
namespace attention_whole {

using namespace whole;
using whole::largest_of;  // beside those of other elements

constexpr float kMost = 4095.f, kMostWeight = 8191.f;
constexpr std::int32_t kTiny = 0x0d800000;  ///< 2^-100, whose inverse times 8191 is finite
constexpr std::int32_t kInfinity = 0x7f800000;
constexpr std::size_t kRunPairs = kWholeBlock / 2;

F load(const float* x) {
  return _mm512_loadu_ps(x);
}
F load(const F16* x) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}
F load(const BF16* x) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}
/// The lower n lanes, and zeros.
F load(const float* x, std::size_t n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), x);
}
F load(const F16* x, std::size_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), x));
}
F load(const BF16* x, std::size_t n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), x));
}

std::int32_t widened(F16, std::uint16_t bits) {
  return _mm_cvtsi128_si32(_mm_castps_si128(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))));
}
std::int32_t widened(BF16, std::uint16_t bits) {
  return static_cast<std::int32_t>(std::uint32_t{bits} << 16);
}

/// Of 16-bit elements, whose bits order like their magnitudes as well.
template <typename Element>
std::int32_t largest_of(const Element* x, std::size_t n) {
  const I magnitudes = _mm512_set1_epi16(0x7fff);
  I most = _mm512_setzero_si512();
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    most = _mm512_max_epu16(most, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitudes));
  }
  if (i < n) {
    const I last = _mm512_maskz_loadu_epi16((1u << (n - i)) - 1u, x + i);
    most = _mm512_max_epu16(most, _mm512_and_si512(last, magnitudes));
  }
  const __m256i half =
      _mm256_max_epu16(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
  const __m128i quarter =
      _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(quarter, _mm_set1_epi32(-1)));
  return widened(Element{}, static_cast<std::uint16_t>(~_mm_cvtsi128_si32(least)));
}

/// From codes to numbers and back, for rows whose largest magnitudes are `largest`.
struct Scales {
  F step, inverse;
};
Scales scales_of(I largest, F most) {
  const F of = _mm512_castsi512_ps(largest);
  const __mmask16 some = _mm512_cmpge_epi32_mask(largest, _mm512_set1_epi32(kTiny));
  const __mmask16 wrong = _mm512_cmpge_epi32_mask(largest, _mm512_set1_epi32(kInfinity));
  const F step = _mm512_maskz_div_ps(some, of, most);
  return {_mm512_mask_mov_ps(step, wrong, _mm512_set1_ps(__builtin_nanf(""))),
          _mm512_maskz_div_ps(some, most, of)};
}
/// The same of one row.
struct Scale {
  float step, inverse;
};
Scale scale_of(std::int32_t largest, float most) {
  if (largest >= kInfinity) return {__builtin_nanf(""), 0.f};
  if (largest < kTiny) return {0.f, 0.f};
  float of;
  __builtin_memcpy(&of, &largest, sizeof of);
  return {of / most, most / of};
}

I codes_of(F x, F inverse) {
  return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
}

/// Codes of 32 neighbours as 16 pairs.
I pair_neighbours(I low, I high) {
  const I order = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
  return _mm512_permutexvar_epi64(order, _mm512_packs_epi32(low, high));
}

/// 32 elements, or n that are there and zeros, as pairs.
template <typename Element>
I round_pairs(const Element* x, F inverse) {
  return pair_neighbours(codes_of(load(x), inverse), codes_of(load(x + 16), inverse));
}
template <typename Element>
I round_pairs(const Element* x, F inverse, std::size_t n) {
  const I low = codes_of(load(x, n), inverse);
  const I high = n > 16 ? codes_of(load(x + 16, n - 16), inverse) : _mm512_setzero_si512();
  return pair_neighbours(low, high);
}

std::size_t run_length(std::size_t n, std::size_t begin) {
  return n - begin < kWholeBlock ? n - begin : kWholeBlock;
}

void round_query(const float* x, std::size_t n, std::uint32_t* pairs, float* scales) {
  for (std::size_t begin = 0; begin < n; begin += kWholeBlock) {
    const std::size_t count = run_length(n, begin);
    const Scale scale = scale_of(largest_of(x + begin, count), kMost);
    const F inverse = _mm512_set1_ps(scale.inverse);
    scales[begin / kWholeBlock] = scale.step;
    for (std::size_t i = 0; i < count; i += 32) {
      const float* const from = x + begin + i;
      _mm512_storeu_si512(pairs + (begin + i) / 2, i + 32 <= count
                                                       ? round_pairs(from, inverse)
                                                       : round_pairs(from, inverse, count - i));
    }
  }
}

/// x[r] lane c becomes x[c] lane r.
void turn(I (&x)[16]) {
  F lanes[16];
  LEMMA_UNROLL
  for (int i = 0; i < 16; ++i) lanes[i] = _mm512_castsi512_ps(x[i]);
  avx512::Simd::transpose(lanes);
  LEMMA_UNROLL
  for (int i = 0; i < 16; ++i) x[i] = _mm512_castps_si512(lanes[i]);
}

/// 16 rows by 32 columns, or n, of keys.
template <typename Element>
void turn_block(const Element* x, std::size_t stride, std::size_t n, const float* inverse,
                std::uint32_t* to) {
  I block[kPanelRows];
  if (n >= 32) {
    LEMMA_UNROLL
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      block[r] = round_pairs(x + r * stride, _mm512_set1_ps(inverse[r]));
    }
  } else {
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      block[r] = round_pairs(x + r * stride, _mm512_set1_ps(inverse[r]), n);
    }
  }
  turn(block);
  LEMMA_UNROLL
  for (std::size_t p = 0; p < 16; ++p) _mm512_storeu_si512(to + p * kPanelRows, block[p]);
}

template <typename Element>
void turn_keys(const std::byte* rows, std::size_t stride, std::size_t n, std::uint32_t* panel,
               float* scales, std::size_t scale_stride) {
  const Element* const first = reinterpret_cast<const Element*>(rows);
  for (std::size_t begin = 0; begin < n; begin += kWholeBlock) {
    const std::size_t count = run_length(n, begin);
    alignas(64) std::int32_t largest[kPanelRows];
    alignas(64) float inverse[kPanelRows];
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      largest[r] = largest_of(first + r * stride + begin, count);
    }
    const Scales of_rows = scales_of(_mm512_load_si512(largest), _mm512_set1_ps(kMost));
    _mm512_storeu_ps(scales + begin / kWholeBlock * scale_stride, of_rows.step);
    _mm512_store_ps(inverse, of_rows.inverse);
    for (std::size_t i = 0; i < count; i += 32) {
      turn_block(first + begin + i, stride, count - i, inverse,
                 panel + (begin + i) / 2 * kPanelRows);
    }
  }
}

/// The lower halves of both.
I pair_rows(I even, I odd) {
  return _mm512_mask_blend_epi16(0xaaaaaaaa, even, _mm512_slli_epi32(odd, 16));
}

/// Two rows of values, or what is there of them.
template <typename Element>
void pair_two(const Element* const (&rows)[2], std::size_t n, const float* inverse,
              std::uint32_t* to) {
  const F even = _mm512_set1_ps(inverse[0]), odd = _mm512_set1_ps(inverse[1]);
  std::size_t c = 0;
  if (rows[0] != nullptr && rows[1] != nullptr) {
    for (; c + 16 <= n; c += 16) {
      const I codes = codes_of(load(rows[0] + c), even);
      _mm512_storeu_si512(to + c, pair_rows(codes, codes_of(load(rows[1] + c), odd)));
    }
  }
  for (; c < n; c += 16) {
    I codes[2] = {};
    if (rows[0] != nullptr) codes[0] = codes_of(load(rows[0] + c, n - c), even);
    if (rows[1] != nullptr) codes[1] = codes_of(load(rows[1] + c, n - c), odd);
    _mm512_storeu_si512(to + c, pair_rows(codes[0], codes[1]));
  }
}

template <typename Element>
void pair_values(const std::byte* rows, std::size_t stride, std::size_t n, std::size_t begin,
                 std::size_t end, std::uint32_t* pairs, float* scales) {
  const Element* const first = reinterpret_cast<const Element*>(rows);
  const std::size_t width = (n + 15) / 16 * 16;
  alignas(64) std::int32_t largest[kPiece] = {};
  alignas(64) float inverse[kPiece];
  for (std::size_t j = begin; j < end; ++j) largest[j] = largest_of(first + j * stride, n);
  for (std::size_t j = begin / 16 * 16; j < end; j += 16) {
    const Scales of_rows = scales_of(_mm512_load_si512(largest + j), _mm512_set1_ps(kMost));
    _mm512_store_ps(inverse + j, of_rows.inverse);
    const __mmask16 before = j < begin ? first_lanes(begin - j) : __mmask16{0};
    _mm512_mask_storeu_ps(scales + j, _kandn_mask16(before, first_lanes(end - j)), of_rows.step);
  }
  for (std::size_t j = begin / 2 * 2; j < end; j += 2) {
    const Element* const two[2] = {j >= begin ? first + j * stride : nullptr,
                                   j + 1 < end ? first + (j + 1) * stride : nullptr};
    pair_two(two, n, inverse + j, pairs + j / 2 * width);
  }
}

void round_weights(const WholeWeightsJob& job) {
  constexpr std::size_t kVectors = kPiece / 16;
  F w[kVectors];
  I most = _mm512_setzero_si512();
  LEMMA_UNROLL
  for (std::size_t v = 0; v < kVectors; ++v) {
    __mmask16 seen = 0xffff;
    if (job.visible != nullptr) {
      const I visible = _mm512_loadu_si512(job.visible + v * 16);
      seen = _mm512_test_epi32_mask(visible, visible);
    }
    // What is not seen may have any scale, NaN included.
    w[v] = _mm512_maskz_mul_ps(seen, _mm512_loadu_ps(job.weights + v * 16),
                               _mm512_loadu_ps(job.value_scales + v * 16));
    most = _mm512_max_epi32(most, magnitude(w[v]));
  }
  const Scale scale = scale_of(_mm512_reduce_max_epi32(most), kMostWeight);
  *job.scale = scale.step;
  const F inverse = _mm512_set1_ps(scale.inverse);
  LEMMA_UNROLL
  for (std::size_t v = 0; v < kVectors; v += 2) {
    _mm512_storeu_si512(job.pairs + v * 8,
                        pair_neighbours(codes_of(w[v], inverse), codes_of(w[v + 1], inverse)));
  }
}

/// R rows by 16 P columns from `row` and `column` on.
template <std::size_t R, std::size_t P>
void tile(const WholeProductJob& job, std::size_t row, std::size_t column) {
  float* const out = job.out + row * job.out_stride + column;
  const std::uint32_t* const x = job.x + row * job.x_stride;
  const std::uint32_t* panel = job.panel + column / kPanelRows * job.panel_stride;
  for (std::size_t begin = 0; begin < job.k; begin += kRunPairs) {
    const std::size_t end = job.k - begin < kRunPairs ? job.k : begin + kRunPairs;
    Sums sum[R][P];
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      LEMMA_UNROLL
      for (std::size_t p = 0; p < P; ++p) sum[r][p] = Sums{};
    }
    for (std::size_t k = begin; k < end; ++k, panel += job.k_stride) {
      I w[P];
      LEMMA_UNROLL
      for (std::size_t p = 0; p < P; ++p) w[p] = _mm512_loadu_si512(panel + p * job.panel_stride);
      LEMMA_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        const I pair = _mm512_set1_epi32(static_cast<int>(x[r * job.x_stride + k]));
        LEMMA_UNROLL
        for (std::size_t p = 0; p < P; ++p) sum[r][p] = add(sum[r][p], w[p], pair);
      }
    }
    const std::size_t run = begin / kRunPairs;
    const bool fresh = begin == 0 && !job.accumulate;
    F scales[P];
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      scales[p] = job.column_scales == nullptr
                      ? _mm512_set1_ps(1.f)
                      : _mm512_loadu_ps(job.column_scales + run * kPiece + column + p * kPanelRows);
    }
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      const F scale = _mm512_set1_ps(job.row_scales[(row + r) * job.row_scale_stride + run]);
      LEMMA_UNROLL
      for (std::size_t p = 0; p < P; ++p) {
        float* const to = out + r * job.out_stride + p * kPanelRows;
        const F before = fresh ? F{} : _mm512_loadu_ps(to);
        _mm512_storeu_ps(
            to, _mm512_fmadd_ps(to_float(sum[r][p]), _mm512_mul_ps(scale, scales[p]), before));
      }
    }
  }
}

template <std::size_t R>
void rows_of(const WholeProductJob& job, std::size_t& row) {
  for (; row + R <= job.rows; row += R) {
    std::size_t column = 0;
    if constexpr (R < 8) {
      for (; column + 4 * kPanelRows <= job.columns; column += 4 * kPanelRows) {
        tile<R, 4>(job, row, column);
      }
    }
    for (; column + 2 * kPanelRows <= job.columns; column += 2 * kPanelRows) {
      tile<R, 2>(job, row, column);
    }
    if (column < job.columns) tile<R, 1>(job, row, column);
  }
}

/// Rows first: a piece's panel stays in the cache while few rows pass through it.
void product(const WholeProductJob& job) {
  std::size_t row = 0;
  rows_of<8>(job, row);
  rows_of<4>(job, row);
  rows_of<2>(job, row);
  rows_of<1>(job, row);
}

}  // namespace attention_whole
}  // namespace

namespace at = attention_whole;

constinit const WholeAttention kAvx512WholeAttention = {
    at::round_query,
    {at::turn_keys<F16>, at::turn_keys<BF16>, at::turn_keys<float>},
    {at::pair_values<F16>, at::pair_values<BF16>, at::pair_values<float>},
    at::round_weights,
    at::product};

}  // namespace lemma::cpu
