// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/packing.hpp"

#include <algorithm>
#include <array>

#include "backend/cpu/packing_grids.hpp"
#include "backend/cpu/packing_tables.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
namespace {

using namespace packing;
using weights::Format;

// In the order of weights::Format.
// clang-format off
constexpr std::array kKernels = {
    WeightKernel::kF32, WeightKernel::kF16, WeightKernel::kBF16,
    WeightKernel::kQ8_0, WeightKernel::kQ4_0, WeightKernel::kQ4_K, WeightKernel::kQ6_K,
    WeightKernel::kQ5_0, WeightKernel::kQ4_1, WeightKernel::kQ5_1, WeightKernel::kQ2_K,
    WeightKernel::kQ3_K, WeightKernel::kQ5_K, WeightKernel::kQ8_K,
    WeightKernel::kSteps32, WeightKernel::kSteps16,                         // IQ1_S, IQ1_M
    WeightKernel::kPointsIQ2_XXS, WeightKernel::kSigned16, WeightKernel::kSigned16,  // IQ2
    WeightKernel::kPointsIQ3_XXS, WeightKernel::kPointsIQ3_S,               // IQ3_XXS, _S
    WeightKernel::kHalves32, WeightKernel::kTable32,                        // IQ4_NL, _XS
    WeightKernel::kBase3, WeightKernel::kTernary,                           // TQ1_0, TQ2_0
    WeightKernel::kPowers32, WeightKernel::kEights16,                       // MXFP4, NVFP4
};
// clang-format on
static_assert(kKernels.size() == weights::kFormats.size());

/// The table of values that leads a panel, padded to a cache line.
constexpr std::size_t kTableBytes = 64;
template <typename S>
constexpr std::size_t leading_bytes() noexcept {
  if constexpr (requires { S::kTable; }) return kTableBytes;
  return 0;
}

/// The rows of a panel, as far as they exist.
struct Rows {
  const std::byte* first;
  std::size_t stride, count, cols;
};

/// The unit of a row's last blocks, where they are fewer than a unit takes: without the words that
/// the others would have.
template <typename S>
constexpr Unit part_of(std::size_t blocks) noexcept {
  Unit unit = S::kUnit;
  unit.words = unit.words / S::kBlocks * blocks;
  return unit;
}

/// A panel of whole units, and of a part of one where blocks are left over.
template <typename S>
std::size_t strips_bytes(std::size_t blocks) noexcept {
  const std::size_t rest = blocks % S::kBlocks;
  return leading_bytes<S>() + blocks / S::kBlocks * S::kUnits * S::kUnit.size() +
         (rest > 0 ? part_of<S>(rest).size() : 0);
}

/// Asks for `bytes` bytes that will be read next.
inline void ask(const std::byte* at, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i);
}

template <typename S>
void pack_strips(const Rows& rows, std::size_t blocks, std::byte* panel) noexcept {
  if constexpr (requires { S::kTable; }) {
    std::memset(panel, 0, kTableBytes);
    std::memcpy(panel, S::kTable.data(), S::kTable.size());
    panel += kTableBytes;
  }
  Strip strips[kPanelRows];
  if (rows.count < kPanelRows) std::memset(strips, 0, sizeof strips);
  const std::size_t next_panel = kPanelRows * rows.stride;
  for (std::size_t b = 0; b < blocks; b += S::kBlocks) {
    const std::size_t beside = std::min(S::kBlocks, blocks - b);
    const Unit unit = part_of<S>(beside);
    for (std::size_t part = 0; part < S::kUnits; ++part) {
      for (std::size_t r = 0; r < rows.count; ++r) {
        const std::byte* const at = rows.first + r * rows.stride + b * S::kBlockBytes;
        if (beside < S::kBlocks) strips[r] = {};
        if (part == 0) ask(at + next_panel, S::kBlocks * S::kBlockBytes);
        for (std::size_t i = 0; i < beside; ++i) {
          S::take(at + i * S::kBlockBytes, i + part, strips[r]);
        }
      }
      interleave(unit, strips, panel);
      panel += unit.size();
    }
  }
}

/// [K][16] elements of `Bytes` bytes, padded to a cache line.
template <std::size_t Bytes>
void pack_floats(const Rows& rows, std::byte* panel) noexcept {
  constexpr std::size_t kElements = sizeof(Strip::words) / Bytes, kAtOnce = 16 / Bytes;
  Strip strips[kPanelRows];
  std::memset(strips, 0, sizeof strips);
  const auto* const start = reinterpret_cast<const std::byte*>(strips);
  std::byte last[kAtOnce * kPanelRows * Bytes];
  for (std::size_t k = 0; k < rows.cols; k += kElements) {
    const std::size_t some = std::min(kElements, rows.cols - k);
    for (std::size_t r = 0; r < rows.count; ++r) {
      const std::byte* const at = rows.first + r * rows.stride + k * Bytes;
      ask(at + kPanelRows * rows.stride, some * Bytes);
      std::memcpy(strips[r].words, at, some * Bytes);
    }
    for (std::size_t i = 0; i < some; i += kAtOnce) {
      const std::size_t count = std::min(kAtOnce, some - i);
      std::byte* const to = count == kAtOnce ? panel : last;
      if constexpr (Bytes == 4) {
        interleave_four_words(start + i * Bytes, sizeof(Strip), to);
      } else {
        interleave_eight_halves(start + i * Bytes, sizeof(Strip), to);
      }
      if (to == last) std::memcpy(panel, last, count * kPanelRows * Bytes);
      panel += count * kPanelRows * Bytes;
    }
  }
  const std::size_t end = rows.cols * kPanelRows * Bytes;
  std::memset(panel, 0, (end + 63) / 64 * 64 - end);
}

/// Calls `use` with the strip of a quantized format.
template <typename Use>
auto with_strip(Format format, Use&& use) noexcept {
  switch (format) {
    case Format::kQ8_0:
      return use.template operator()<Q8_0Strip>();
    case Format::kQ4_0:
      return use.template operator()<Q4_0Strip>();
    case Format::kQ5_0:
      return use.template operator()<Q5_0Strip>();
    case Format::kQ4_1:
      return use.template operator()<Q4_1Strip>();
    case Format::kQ5_1:
      return use.template operator()<Q5_1Strip>();
    case Format::kQ2_K:
      return use.template operator()<Q2_KStrip>();
    case Format::kQ3_K:
      return use.template operator()<Q3_KStrip>();
    case Format::kQ4_K:
      return use.template operator()<Q4_KStrip>();
    case Format::kQ5_K:
      return use.template operator()<Q5_KStrip>();
    case Format::kQ6_K:
      return use.template operator()<Q6_KStrip>();
    case Format::kQ8_K:
      return use.template operator()<Q8_KStrip>();
    case Format::kIQ1_S:
      return use.template operator()<IQ1_SStrip>();
    case Format::kIQ1_M:
      return use.template operator()<IQ1_MStrip>();
    case Format::kIQ2_XXS:
      return use.template operator()<IQ2_XXSStrip>();
    case Format::kIQ2_XS:
      return use.template operator()<IQ2_XSStrip>();
    case Format::kIQ2_S:
      return use.template operator()<IQ2_SStrip>();
    case Format::kIQ3_XXS:
      return use.template operator()<IQ3_XXSStrip>();
    case Format::kIQ3_S:
      return use.template operator()<IQ3_SStrip>();
    case Format::kIQ4_NL:
      return use.template operator()<IQ4_NLStrip>();
    case Format::kIQ4_XS:
      return use.template operator()<IQ4_XSStrip>();
    case Format::kTQ1_0:
      return use.template operator()<TQ1_0Strip>();
    case Format::kTQ2_0:
      return use.template operator()<TQ2_0Strip>();
    case Format::kMXFP4:
      return use.template operator()<MXFP4Strip>();
    default:
      return use.template operator()<NVFP4Strip>();
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
  if (!takes_int8(kernel_of(format))) {
    return (cols * kPanelRows * weights::traits(format).block_bytes + 63) / 64 * 64;
  }
  const std::size_t blocks = cols / weights::traits(format).block_elements;
  return with_strip(format, [&]<typename S>() { return strips_bytes<S>(blocks); });
}

void pack_panel(const weights::Matrix& matrix, std::uint64_t first_row, std::byte* panel) noexcept {
  const Rows rows{
      matrix.row(first_row), matrix.row_bytes(),
      static_cast<std::size_t>(std::min<std::uint64_t>(kPanelRows, matrix.rows - first_row)),
      static_cast<std::size_t>(matrix.cols)};
  if (matrix.format == Format::kF32) return pack_floats<4>(rows, panel);
  if (!takes_int8(kernel_of(matrix.format))) return pack_floats<2>(rows, panel);
  const std::size_t blocks = rows.cols / weights::traits(matrix.format).block_elements;
  with_strip(matrix.format, [&]<typename S>() { pack_strips<S>(rows, blocks, panel); });
}

}  // namespace lemma::cpu
