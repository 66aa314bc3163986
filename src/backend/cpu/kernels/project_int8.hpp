// SPDX-License-Identifier: Apache-2.0
// Products of quantized weights with int8 activations, for any instruction set. A format is a
// small reader of its packed panel (drawn in packing.hpp); the tile is written once.
//
// Per group of 32 columns: an exact integer dot product of 16 outputs at once, four columns a
// step; then one conversion, and sum = fma(float(dot), weight scale * activation scale, sum). The
// integer part is exact in any order and groups follow one another in ascending order, so the
// tile's height changes no bits.
#pragma once

#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/kernels/product.hpp"
#include "backend/cpu/kernels/unroll.hpp"

namespace lemma::cpu {

inline constexpr std::size_t kQuad = 4;              ///< columns of one step: a 32-bit lane
inline constexpr std::size_t kVectorBytes = 64;      ///< 16 outputs x 4 columns
inline constexpr std::size_t kPrefetchBytes = 4096;  ///< ahead of the codes that are being read

/// Asks for the `Bytes` bytes that lie the prefetch distance after `at`.
template <typename Simd, std::size_t Bytes>
void prefetch_ahead(const std::byte* at) {
  LEMMA_UNROLL
  for (std::size_t i = 0; i < Bytes; i += 64) __builtin_prefetch(at + kPrefetchBytes + i);
}

/// Q8_0: [K / 32][16] f16 scales, padded to 64 bytes; [K / 32][8][16][4] codes.
template <typename Simd>
struct PanelQ8_0 {
  static constexpr std::size_t kParts = 1;
  static constexpr int kOffsetShift = Simd::kSignedOffsetShift;  ///< dots are off by sum << shift
  static constexpr bool kMinimum = false;
  const std::byte* scales;
  const std::byte* codes;

  PanelQ8_0(const std::byte* panel, std::size_t cols)
      : scales(panel), codes(panel + (cols / kGroup * 32 + 63) / 64 * 64) {}
  void prefetch(std::size_t g) const { prefetch_ahead<Simd, 512>(codes + g * 512); }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    return Simd::signed_codes(codes + g * 512 + Q * kVectorBytes + v * 4 * Simd::kLanes);
  }
  static typename Simd::I dot(typename Simd::I sum, typename Simd::I w, typename Simd::I a) {
    return Simd::dot_signed(sum, w, a);
  }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::load_f16(scales + g * 32 + v * 2 * Simd::kLanes);
  }
};

/// Q4_0: [K / 32][16] f16 scales, padded to 64 bytes; [K / 32][4][16][4] bytes, the low nibble of
/// vector q holding columns 4q.., the high one columns 16 + 4q...
template <typename Simd>
struct PanelQ4_0 {
  static constexpr std::size_t kParts = 1;
  static constexpr int kOffsetShift = 3;  ///< codes stand for q - 8
  static constexpr bool kMinimum = false;
  const std::byte* scales;
  const std::byte* codes;

  PanelQ4_0(const std::byte* panel, std::size_t cols)
      : scales(panel), codes(panel + (cols / kGroup * 32 + 63) / 64 * 64) {}
  void prefetch(std::size_t g) const { prefetch_ahead<Simd, 256>(codes + g * 256); }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const typename Simd::I pair =
        Simd::codes(codes + g * 256 + Q % 4 * kVectorBytes + v * 4 * Simd::kLanes);
    return Simd::template bits<4, Q / 4 * 4>(pair);
  }
  static typename Simd::I dot(typename Simd::I sum, typename Simd::I w, typename Simd::I a) {
    return Simd::dot_unsigned(sum, w, a);
  }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::load_f16(scales + g * 32 + v * 2 * Simd::kLanes);
  }
};

/// Q5_0: [K / 32][16] f16 scales, padded to 64 bytes; per 32 columns [4][16][4] bytes as in Q4_0
/// and [16][4] bytes of high bits: bit q belongs to columns 4q...
template <typename Simd>
struct PanelQ5_0 {
  static constexpr std::size_t kParts = 1;
  static constexpr int kOffsetShift = 4;  ///< codes stand for q - 16
  static constexpr bool kMinimum = false;
  static constexpr std::size_t kGroupBytes = 256 + 64;
  const std::byte* scales;
  const std::byte* codes;

  PanelQ5_0(const std::byte* panel, std::size_t cols)
      : scales(panel), codes(panel + (cols / kGroup * 32 + 63) / 64 * 64) {}
  void prefetch(std::size_t g) const { prefetch_ahead<Simd, kGroupBytes>(codes + g * kGroupBytes); }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const std::byte* const at = codes + g * kGroupBytes + v * 4 * Simd::kLanes;
    return Simd::bit_or(
        Simd::template bits<4, Q / 4 * 4>(Simd::codes(at + Q % 4 * kVectorBytes)),
        Simd::template shift_up<4>(Simd::template bits<1, Q>(Simd::codes(at + 256))));
  }
  static typename Simd::I dot(typename Simd::I sum, typename Simd::I w, typename Simd::I a) {
    return Simd::dot_unsigned(sum, w, a);
  }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::load_f16(scales + g * 32 + v * 2 * Simd::kLanes);
  }
};

/// Q4_K, per 256 columns: [16] f16 d, [16] f16 dmin, [8][16] u8 scales, [8][16] u8 minimums, then
/// [8][4][16][4] bytes as in Q4_0.
template <typename Simd>
struct PanelQ4_K {
  static constexpr std::size_t kParts = 1;
  static constexpr int kOffsetShift = -1;  ///< codes are what they are; minimums are apart
  static constexpr bool kMinimum = true;
  static constexpr std::size_t kBlock = 64 + 128 + 128 + 2048;
  const std::byte* panel;

  PanelQ4_K(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  void prefetch(std::size_t g) const { prefetch_ahead<Simd, 320>(block(g) + 320 + g % 8 * 256); }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const typename Simd::I pair =
        Simd::codes(block(g) + 320 + g % 8 * 256 + Q % 4 * kVectorBytes + v * 4 * Simd::kLanes);
    return Simd::template bits<4, Q / 4 * 4>(pair);
  }
  static typename Simd::I dot(typename Simd::I sum, typename Simd::I w, typename Simd::I a) {
    return Simd::dot_unsigned(sum, w, a);
  }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::mul(Simd::load_f16(block(g) + v * 2 * Simd::kLanes),
                     Simd::load_u8(block(g) + 64 + g % 8 * 16 + v * Simd::kLanes));
  }
  typename Simd::F minimum(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::mul(Simd::load_f16(block(g) + 32 + v * 2 * Simd::kLanes),
                     Simd::load_u8(block(g) + 192 + g % 8 * 16 + v * Simd::kLanes));
  }
};

/// Q6_K, per 256 columns: [16] f16 d, padded to 64 bytes; [16][16] i8 scales; [8][4][16][4] bytes
/// with the low 4 bits as in Q4_0; [8][2][16][4] bytes with the high 2 bits: bits 2q, 2q + 1 of
/// vector h belong to columns 16 h + 4 q...
template <typename Simd>
struct PanelQ6_K {
  static constexpr std::size_t kParts = 2;
  static constexpr int kOffsetShift = 5;  ///< codes stand for q - 32
  static constexpr bool kMinimum = false;
  static constexpr std::size_t kLow = 64 + 256, kHigh = kLow + 2048, kBlock = kHigh + 1024;
  const std::byte* panel;

  PanelQ6_K(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  void prefetch(std::size_t g) const {
    prefetch_ahead<Simd, 256>(block(g) + kLow + g % 8 * 256);
    prefetch_ahead<Simd, 128>(block(g) + kHigh + g % 8 * 128);
  }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const std::size_t at = v * 4 * Simd::kLanes;
    const typename Simd::I low =
        Simd::codes(block(g) + kLow + g % 8 * 256 + Q % 4 * kVectorBytes + at);
    const typename Simd::I high =
        Simd::codes(block(g) + kHigh + g % 8 * 128 + Q / 4 * kVectorBytes + at);
    return Simd::bit_or(Simd::template bits<4, Q / 4 * 4>(low),
                        Simd::template shift_up<4>(Simd::template bits<2, Q % 4 * 2>(high)));
  }
  static typename Simd::I dot(typename Simd::I sum, typename Simd::I w, typename Simd::I a) {
    return Simd::dot_unsigned(sum, w, a);
  }
  typename Simd::F scale(std::size_t g, std::size_t part, std::size_t v) const {
    return Simd::mul(Simd::load_f16(block(g) + v * 2 * Simd::kLanes),
                     Simd::load_s8(block(g) + 64 + (g % 8 * 2 + part) * 16 + v * Simd::kLanes));
  }
};

/// The rows of a tile: pointers to each row's part of a QuantizedRows. (`Simd` only makes its
/// members local to one instruction set.)
template <typename Simd, std::size_t R>
struct TileRows {
  const std::int8_t* codes[R];
  const float* scales[R];
  const float* scaled_sums[R];
  const std::int32_t* sums[R];

  TileRows(const ProjectJob& job, std::size_t row) {
    const std::size_t groups = job.cols / kGroup;
    for (std::size_t r = 0; r < R; ++r) {
      codes[r] = job.quantized.codes + (row + r) * job.cols;
      scales[r] = job.quantized.scales + (row + r) * groups;
      scaled_sums[r] = job.quantized.scaled_sums + (row + r) * groups;
      sums[r] = job.quantized.sums + (row + r) * groups * 3;
    }
  }
};

template <typename Simd, typename Panel, std::size_t R, std::size_t Q>
void add_quad(const Panel& panel, std::size_t g, const TileRows<Simd, R>& rows,
              typename Simd::I (&dots)[R][kPanelRows / Simd::kLanes]) {
  constexpr std::size_t kVectors = kPanelRows / Simd::kLanes;
  LEMMA_UNROLL
  for (std::size_t v = 0; v < kVectors; ++v) {
    const typename Simd::I w = panel.template quad<Q>(g, v);
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      dots[r][v] = Panel::dot(dots[r][v], w, Simd::splat4(rows.codes[r] + g * kGroup + Q * kQuad));
    }
  }
}

/// Subtracts a part's minimum times the sum of its activations.
template <typename Simd, typename Panel, std::size_t R, std::size_t Part>
void subtract_minimum(const Panel& panel, std::size_t g, const TileRows<Simd, R>& rows,
                      typename Simd::F (&sum)[R][kPanelRows / Simd::kLanes]) {
  LEMMA_UNROLL
  for (std::size_t v = 0; v < kPanelRows / Simd::kLanes; ++v) {
    const typename Simd::F minimum = panel.minimum(g, Part, v);
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      float activations = rows.scaled_sums[r][g];
      if constexpr (Panel::kParts == 2) {
        activations = rows.scales[r][g] * static_cast<float>(rows.sums[r][g * 3 + 1 + Part]);
      }
      sum[r][v] = Simd::fnma(minimum, Simd::set(activations), sum[r][v]);
    }
  }
}

/// Adds one part (a whole group, or a half where scales cover 16 columns) to the sums.
template <typename Simd, typename Panel, std::size_t R, std::size_t Part>
void add_part(const Panel& panel, std::size_t g, const TileRows<Simd, R>& rows,
              typename Simd::F (&sum)[R][kPanelRows / Simd::kLanes]) {
  constexpr std::size_t kVectors = kPanelRows / Simd::kLanes;
  constexpr std::size_t kFirst = Part * 4;
  typename Simd::I dots[R][kVectors];
  LEMMA_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    LEMMA_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) dots[r][v] = Simd::zero_int();
  }
  add_quad<Simd, Panel, R, kFirst + 0>(panel, g, rows, dots);
  add_quad<Simd, Panel, R, kFirst + 1>(panel, g, rows, dots);
  add_quad<Simd, Panel, R, kFirst + 2>(panel, g, rows, dots);
  add_quad<Simd, Panel, R, kFirst + 3>(panel, g, rows, dots);
  if constexpr (Panel::kParts == 1) {
    add_quad<Simd, Panel, R, 4>(panel, g, rows, dots);
    add_quad<Simd, Panel, R, 5>(panel, g, rows, dots);
    add_quad<Simd, Panel, R, 6>(panel, g, rows, dots);
    add_quad<Simd, Panel, R, 7>(panel, g, rows, dots);
  }
  constexpr std::size_t kSum = Panel::kParts == 1 ? 0 : 1 + Part;
  LEMMA_UNROLL
  for (std::size_t v = 0; v < kVectors; ++v) {
    const typename Simd::F scale = panel.scale(g, Part, v);
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      typename Simd::I dot = dots[r][v];
      if constexpr (Panel::kOffsetShift >= 0) {
        dot =
            Simd::template subtract_shifted<Panel::kOffsetShift>(dot, rows.sums[r] + g * 3 + kSum);
      }
      sum[r][v] =
          Simd::fma(Simd::to_float(dot), Simd::mul(scale, Simd::set(rows.scales[r][g])), sum[r][v]);
    }
  }
}

template <typename Simd, typename Panel, std::size_t R>
void int8_tile(const ProjectJob& job, const std::byte* bytes, std::size_t row, std::size_t first) {
  constexpr std::size_t kVectors = kPanelRows / Simd::kLanes;
  const Panel panel(bytes, job.cols);
  const TileRows<Simd, R> rows(job, row);
  typename Simd::F sum[R][kVectors];
  LEMMA_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    LEMMA_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) sum[r][v] = Simd::zero();
  }
  const std::size_t groups = job.cols / kGroup;
  for (std::size_t g = 0; g < groups; ++g) {
    if constexpr (R == 1) panel.prefetch(g);
    add_part<Simd, Panel, R, 0>(panel, g, rows, sum);
    if constexpr (Panel::kParts == 2) add_part<Simd, Panel, R, 1>(panel, g, rows, sum);
    if constexpr (Panel::kMinimum) {
      subtract_minimum<Simd, Panel, R, 0>(panel, g, rows, sum);
      if constexpr (Panel::kParts == 2) subtract_minimum<Simd, Panel, R, 1>(panel, g, rows, sum);
    }
  }
  LEMMA_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    LEMMA_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) {
      store_columns<Simd>(job.out + (row + r) * job.out_stride, sum[r][v], first + v * Simd::kLanes,
                          job.outputs);
    }
  }
}

template <typename Simd, typename Panel>
void project_int8(const ProjectJob& job) {
  for (std::size_t first = 0; first < job.outputs; first += kPanelRows) {
    const std::byte* const bytes = job.panels + first / kPanelRows * job.panel_bytes;
    std::size_t row = 0;
    if constexpr (Simd::kInt8Rows >= 8) {
      for (; row + 8 <= job.rows; row += 8) int8_tile<Simd, Panel, 8>(job, bytes, row, first);
    }
    if constexpr (Simd::kInt8Rows >= 4) {
      for (; row + 4 <= job.rows; row += 4) int8_tile<Simd, Panel, 4>(job, bytes, row, first);
    }
    if constexpr (Simd::kInt8Rows >= 2) {
      for (; row + 2 <= job.rows; row += 2) int8_tile<Simd, Panel, 2>(job, bytes, row, first);
    }
    for (; row < job.rows; ++row) int8_tile<Simd, Panel, 1>(job, bytes, row, first);
  }
}

}  // namespace lemma::cpu
