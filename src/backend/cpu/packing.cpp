// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/packing.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/packing_unpacked.hpp"
#include "base/check.hpp"
#include "weights/formats/blocks.hpp"

namespace lemma::cpu {
namespace {

using weights::Format;

// In the order of weights::Format.
// clang-format off
constexpr std::array kKernels = {
    WeightKernel::kF32, WeightKernel::kF16, WeightKernel::kBF16,
    WeightKernel::kQ8_0, WeightKernel::kQ4_0, WeightKernel::kQ4_K, WeightKernel::kQ6_K,
    WeightKernel::kQ5_0, WeightKernel::kQ4_1, WeightKernel::kQ5_1, WeightKernel::kQ2_K,
    WeightKernel::kQ3_K, WeightKernel::kQ5_K, WeightKernel::kQ8_K,
    WeightKernel::kTable32, WeightKernel::kTable16,                         // IQ1_S, IQ1_M
    WeightKernel::kTable32, WeightKernel::kTable16, WeightKernel::kTable16, // IQ2_XXS, _XS, _S
    WeightKernel::kTable32, WeightKernel::kTable32,                         // IQ3_XXS, _S
    WeightKernel::kFloats32, WeightKernel::kTable32,                        // IQ4_NL, _XS
    WeightKernel::kTernary, WeightKernel::kTernary,                         // TQ1_0, TQ2_0
    WeightKernel::kFloats32, WeightKernel::kFloats16,                       // MXFP4, NVFP4
};
// clang-format on
static_assert(kKernels.size() == weights::kFormats.size());

/// f16 scales of a panel whose format has one per 32 columns, rounded up to whole lines.
constexpr std::size_t scale_bytes(std::size_t cols) noexcept {
  return (cols / kGroup * kPanelRows * 2 + 63) / 64 * 64;
}

template <std::size_t Bytes>
void pack_floats(const std::byte* row, std::size_t cols, std::size_t r, std::byte* panel) noexcept {
  for (std::size_t k = 0; k < cols; ++k) {
    std::memcpy(panel + (k * kPanelRows + r) * Bytes, row + k * Bytes, Bytes);
  }
}

void pack_q8_0(const std::byte* row, std::size_t cols, std::size_t r, std::byte* panel) noexcept {
  std::byte* const codes = panel + scale_bytes(cols);
  for (std::size_t g = 0; g < cols / kGroup; ++g) {
    weights::BlockQ8_0 block;
    std::memcpy(&block, row + g * sizeof block, sizeof block);
    put(panel + (g * kPanelRows + r) * 2, block.d);
    for (std::size_t q = 0; q < 8; ++q) {
      std::memcpy(codes + (g * 8 + q) * kVector + r * 4, block.qs + q * 4, 4);
    }
  }
}

/// Both formats keep the nibble of element i in byte i % 16, as the panel does.
void pack_nibbles(const std::uint8_t* bytes, std::size_t r, std::byte* group) noexcept {
  for (std::size_t q = 0; q < 4; ++q) std::memcpy(group + q * kVector + r * 4, bytes + q * 4, 4);
}

void pack_q4_0(const std::byte* row, std::size_t cols, std::size_t r, std::byte* panel) noexcept {
  std::byte* const codes = panel + scale_bytes(cols);
  for (std::size_t g = 0; g < cols / kGroup; ++g) {
    weights::BlockQ4_0 block;
    std::memcpy(&block, row + g * sizeof block, sizeof block);
    put(panel + (g * kPanelRows + r) * 2, block.d);
    pack_nibbles(block.qs, r, codes + g * 4 * kVector);
  }
}

void pack_q5_0(const std::byte* row, std::size_t cols, std::size_t r, std::byte* panel) noexcept {
  std::byte* const codes = panel + scale_bytes(cols);
  for (std::size_t g = 0; g < cols / kGroup; ++g) {
    weights::BlockQ5_0 block;
    std::memcpy(&block, row + g * sizeof block, sizeof block);
    put(panel + (g * kPanelRows + r) * 2, block.d);
    std::byte* const group = codes + g * 5 * kVector;
    pack_nibbles(block.qs, r, group);
    for (std::size_t i = 0; i < kGroup; ++i) {
      const unsigned high = block.qh[i / 8] >> (i % 8) & 1u;
      or_into(group[4 * kVector + r * 4 + i % 4], high << (i / 4));
    }
  }
}

void pack_q4_k(const std::byte* row, std::size_t cols, std::size_t r, std::byte* panel) noexcept {
  constexpr std::size_t kScales = 64, kMinimums = kScales + 128, kCodes = kMinimums + 128;
  constexpr std::size_t kBlock = kCodes + 32 * kVector;
  for (std::size_t b = 0; b < cols / kSuper; ++b, panel += kBlock) {
    weights::BlockQ4_K block;
    std::memcpy(&block, row + b * sizeof block, sizeof block);
    put(panel + r * 2, block.d);
    put(panel + 32 + r * 2, block.dmin);
    for (std::size_t j = 0; j < 8; ++j) {
      const weights::ScaleMin pair = weights::unpack_scale_min(block.scales, j);
      put(panel + kScales + j * kPanelRows + r, pair.scale);
      put(panel + kMinimums + j * kPanelRows + r, pair.min);
      for (std::size_t i = 0; i < kGroup; ++i) {
        const unsigned code = block.qs[j / 2 * 32 + i] >> (j % 2 * 4) & 15u;
        const NibblePlace to = nibble(r, i);
        or_into(panel[kCodes + j * 4 * kVector + to.byte], code << to.shift);
      }
    }
  }
}

/// The 6-bit code of element `e` of a block; formats/q6_k.cpp draws where its bits lie.
unsigned code_q6_k(const weights::BlockQ6_K& block, std::size_t e) noexcept {
  const std::size_t half = e / 128, quarter = e % 128 / 32, l = e % 32;
  const unsigned low = block.ql[half * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15u;
  const unsigned high = block.qh[half * 32 + l] >> (quarter * 2) & 3u;
  return low | high << 4;
}

void pack_q6_k(const std::byte* row, std::size_t cols, std::size_t r, std::byte* panel) noexcept {
  constexpr std::size_t kScales = 64, kLow = kScales + 256, kHigh = kLow + 32 * kVector;
  constexpr std::size_t kBlock = kHigh + 16 * kVector;
  for (std::size_t b = 0; b < cols / kSuper; ++b, panel += kBlock) {
    weights::BlockQ6_K block;
    std::memcpy(&block, row + b * sizeof block, sizeof block);
    put(panel + r * 2, block.d);
    for (std::size_t j = 0; j < 16; ++j) put(panel + kScales + j * kPanelRows + r, block.scales[j]);
    for (std::size_t e = 0; e < kSuper; ++e) {
      const unsigned code = code_q6_k(block, e);
      const std::size_t g = e / kGroup, i = e % kGroup;
      const NibblePlace to = nibble(r, i);
      or_into(panel[kLow + g * 4 * kVector + to.byte], (code & 15u) << to.shift);
      or_into(panel[kHigh + (g * 2 + i / 16) * kVector + r * 4 + i % 4],
              code >> 4 << (i % 16 / 4 * 2));
    }
  }
}

void pack_row(Format format, const std::byte* row, std::size_t cols, std::size_t r,
              std::byte* panel) noexcept {
  switch (kernel_of(format)) {
    case WeightKernel::kF32:
      return pack_floats<4>(row, cols, r, panel);
    case WeightKernel::kF16:
    case WeightKernel::kBF16:
      return pack_floats<2>(row, cols, r, panel);
    case WeightKernel::kQ8_0:
      return pack_q8_0(row, cols, r, panel);
    case WeightKernel::kQ4_0:
      return pack_q4_0(row, cols, r, panel);
    case WeightKernel::kQ4_K:
      return pack_q4_k(row, cols, r, panel);
    case WeightKernel::kQ6_K:
      return pack_q6_k(row, cols, r, panel);
    case WeightKernel::kQ5_0:
      return pack_q5_0(row, cols, r, panel);
    default:
      return pack_unpacked_row(format, kernel_of(format), row, cols, r, panel);
  }
}

}  // namespace

bool has_kernel(Format format) noexcept {
  return static_cast<std::size_t>(format) < kKernels.size();
}

WeightKernel kernel_of(Format format) noexcept {
  LEMMA_CHECK(has_kernel(format));
  return kKernels[static_cast<std::size_t>(format)];
}

bool takes_int8(WeightKernel kernel) noexcept {
  return kernel >= WeightKernel::kQ8_0;
}

std::size_t panel_bytes(Format format, std::size_t cols) noexcept {
  switch (kernel_of(format)) {
    case WeightKernel::kF32:
      return cols * kPanelRows * 4;
    case WeightKernel::kF16:
    case WeightKernel::kBF16:
      return (cols * kPanelRows * 2 + 63) / 64 * 64;
    case WeightKernel::kQ8_0:
      return scale_bytes(cols) + cols / kGroup * 8 * kVector;
    case WeightKernel::kQ4_0:
      return scale_bytes(cols) + cols / kGroup * 4 * kVector;
    case WeightKernel::kQ5_0:
      return scale_bytes(cols) + cols / kGroup * 5 * kVector;
    case WeightKernel::kQ4_K:
      return cols / kSuper * (64 + 2 * 128 + 32 * kVector);
    case WeightKernel::kQ6_K:
      return cols / kSuper * (64 + 256 + 48 * kVector);
    default:
      return unpacked_panel_bytes(kernel_of(format), cols);
  }
}

void pack_panel(const weights::Matrix& matrix, std::uint64_t first_row, std::byte* panel) noexcept {
  const std::size_t cols = matrix.cols;
  std::memset(panel, 0, panel_bytes(matrix.format, cols));
  const std::uint64_t rows = std::min<std::uint64_t>(kPanelRows, matrix.rows - first_row);
  for (std::uint64_t r = 0; r < rows; ++r) {
    pack_row(matrix.format, matrix.row(first_row + r), cols, r, panel);
  }
}

}  // namespace lemma::cpu
