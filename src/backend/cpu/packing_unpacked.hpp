// SPDX-License-Identifier: Apache-2.0
// Packing of the formats that come through weights/formats/unpacked.hpp: codes, scales and minimums
// of whole blocks, put where the readers in kernels/project_formats.hpp look for them. Also the
// places that packing.cpp shares. Internal to packing.
#pragma once

#include <cstddef>
#include <cstring>

#include "backend/cpu/kernels/kernels.hpp"
#include "weights/format.hpp"

namespace lemma::cpu {

inline constexpr std::size_t kVector = 64;  ///< bytes: 16 rows x 4 columns
inline constexpr std::size_t kSuper = 256;  ///< columns of a block of the K formats

template <typename T>
void put(std::byte* at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
}

/// Place of column `i` (0..31) of panel row `r` in a group of nibbles: which byte, which shift.
struct NibblePlace {
  std::size_t byte;
  unsigned shift;
};
constexpr NibblePlace nibble(std::size_t r, std::size_t i) noexcept {
  return {i % 16 / 4 * kVector + r * 4 + i % 4, i < 16 ? 0u : 4u};
}

inline void or_into(std::byte& byte, unsigned value) noexcept {
  byte |= static_cast<std::byte>(value);
}

/// Bytes of one panel, and one row of a panel that was zero before, for the layouts from kQ4_1 on.
std::size_t unpacked_panel_bytes(WeightKernel kernel, std::size_t cols) noexcept;
void pack_unpacked_row(weights::Format format, WeightKernel kernel, const std::byte* row,
                       std::size_t cols, std::size_t r, std::byte* panel) noexcept;

}  // namespace lemma::cpu
