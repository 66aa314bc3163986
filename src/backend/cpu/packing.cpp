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
    WeightKernel::kThree32, WeightKernel::kThree16,                         // IQ1_S, IQ1_M
    WeightKernel::kThree32, WeightKernel::kThree16, WeightKernel::kThree16, // IQ2_XXS, _XS, _S
    WeightKernel::kTable32, WeightKernel::kTable32,                         // IQ3_XXS, _S
    WeightKernel::kFloats32, WeightKernel::kTable32,                        // IQ4_NL, _XS
    WeightKernel::kTernary, WeightKernel::kTernary,                         // TQ1_0, TQ2_0
    WeightKernel::kFloats32, WeightKernel::kFloats16,                       // MXFP4, NVFP4
};
// clang-format on
static_assert(kKernels.size() == weights::kFormats.size());

/// Where a group of a layout of paired groups (kernels/project_panels.hpp) has its scales and
/// codes.
struct PairedGroup {
  std::byte* scales;
  std::byte* codes;
};
constexpr std::size_t paired_bytes(std::size_t groups, std::size_t group_bytes) noexcept {
  return (groups + 1) / 2 * 64 + groups * group_bytes;
}
PairedGroup paired(std::byte* panel, std::size_t g, std::size_t group_bytes) noexcept {
  std::byte* const pair = panel + paired_bytes(g / 2 * 2, group_bytes);
  return {pair + g % 2 * 32, pair + 64 + g % 2 * group_bytes};
}

template <std::size_t Bytes>
void pack_floats(const std::byte* row, std::size_t cols, std::size_t r, std::byte* panel) noexcept {
  for (std::size_t k = 0; k < cols; ++k) {
    std::memcpy(panel + (k * kPanelRows + r) * Bytes, row + k * Bytes, Bytes);
  }
}

void pack_q8_0(const std::byte* row, std::size_t cols, std::size_t r, std::byte* panel) noexcept {
  for (std::size_t g = 0; g < cols / kGroup; ++g) {
    weights::BlockQ8_0 block;
    std::memcpy(&block, row + g * sizeof block, sizeof block);
    const PairedGroup to = paired(panel, g, 8 * kVector);
    put(to.scales + r * 2, block.d);
    for (std::size_t q = 0; q < 8; ++q) {
      std::memcpy(to.codes + q * kVector + r * 4, block.qs + q * 4, 4);
    }
  }
}

/// Both formats keep the nibble of element i in byte i % 16, as the panel does.
void pack_nibbles(const std::uint8_t* bytes, std::size_t r, std::byte* group) noexcept {
  for (std::size_t q = 0; q < 4; ++q) std::memcpy(group + q * kVector + r * 4, bytes + q * 4, 4);
}

void pack_q4_0(const std::byte* row, std::size_t cols, std::size_t r, std::byte* panel) noexcept {
  for (std::size_t g = 0; g < cols / kGroup; ++g) {
    weights::BlockQ4_0 block;
    std::memcpy(&block, row + g * sizeof block, sizeof block);
    const PairedGroup to = paired(panel, g, 4 * kVector);
    put(to.scales + r * 2, block.d);
    pack_nibbles(block.qs, r, to.codes);
  }
}

void pack_q5_0(const std::byte* row, std::size_t cols, std::size_t r, std::byte* panel) noexcept {
  for (std::size_t g = 0; g < cols / kGroup; ++g) {
    weights::BlockQ5_0 block;
    std::memcpy(&block, row + g * sizeof block, sizeof block);
    const PairedGroup to = paired(panel, g, 5 * kVector);
    put(to.scales + r * 2, block.d);
    pack_nibbles(block.qs, r, to.codes);
    for (std::size_t i = 0; i < kGroup; ++i) {
      const unsigned high = block.qh[i / 8] >> (i % 8) & 1u;
      or_into(to.codes[4 * kVector + r * 4 + i % 4], high << (i / 4));
    }
  }
}

template <typename Word>
Word word_at(const std::uint8_t* bytes) noexcept {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

/// 32 nibbles, those at `shift` of 32 bytes, to their places in a group: eight at a time.
void pack_nibbles_at(const std::uint8_t* bytes, std::size_t shift, std::size_t r,
                     std::byte* group) noexcept {
  constexpr std::uint64_t kMask = 0x0f0f0f0f0f0f0f0fu;
  for (std::size_t i = 0; i < 16; i += 8) {
    const std::uint64_t low = word_at<std::uint64_t>(bytes + i) >> shift & kMask;
    const std::uint64_t high = word_at<std::uint64_t>(bytes + 16 + i) >> shift & kMask;
    const std::uint64_t both = low | high << 4;
    std::memcpy(group + i / 4 * kVector + r * 4, &both, 4);
    std::memcpy(group + (i / 4 + 1) * kVector + r * 4, reinterpret_cast<const char*>(&both) + 4, 4);
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
      pack_nibbles_at(block.qs + j / 2 * 32, j % 2 * 4, r, panel + kCodes + j * 4 * kVector);
    }
  }
}

/// formats/q6_k.cpp draws where a code's bits lie: of 32 columns side by side in 32 bytes each.
void pack_q6_k(const std::byte* row, std::size_t cols, std::size_t r, std::byte* panel) noexcept {
  constexpr std::size_t kScales = 64, kLow = kScales + 256, kHigh = kLow + 32 * kVector;
  constexpr std::size_t kBlock = kHigh + 16 * kVector;
  for (std::size_t b = 0; b < cols / kSuper; ++b, panel += kBlock) {
    weights::BlockQ6_K block;
    std::memcpy(&block, row + b * sizeof block, sizeof block);
    put(panel + r * 2, block.d);
    for (std::size_t j = 0; j < 16; ++j) put(panel + kScales + j * kPanelRows + r, block.scales[j]);
    for (std::size_t g = 0; g < 8; ++g) {
      const std::size_t half = g / 4, quarter = g % 4;
      pack_nibbles_at(block.ql + half * 64 + quarter % 2 * 32, quarter / 2 * 4, r,
                      panel + kLow + g * 4 * kVector);
      for (std::size_t h = 0; h < 2; ++h) {
        std::uint32_t pairs = 0;
        for (std::size_t q = 0; q < 4; ++q) {
          const auto four = word_at<std::uint32_t>(block.qh + half * 32 + h * 16 + q * 4);
          pairs |= (four >> (quarter * 2) & 0x03030303u) << (q * 2);
        }
        put(panel + kHigh + (g * 2 + h) * kVector + r * 4, pairs);
      }
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
      return paired_bytes(cols / kGroup, 8 * kVector);
    case WeightKernel::kQ4_0:
      return paired_bytes(cols / kGroup, 4 * kVector);
    case WeightKernel::kQ5_0:
      return paired_bytes(cols / kGroup, 5 * kVector);
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
