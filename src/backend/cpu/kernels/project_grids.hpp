// SPDX-License-Identifier: Apache-2.0
// Readers of the packed panels of the formats of few levels: IQ1 and IQ2, whose codes choose from a
// table that leads the panel, and TQ. Codes lie as project_formats.hpp says.
#pragma once

#include "backend/cpu/kernels/project_formats.hpp"

namespace lemma::cpu {

/// TQ1_0, TQ2_0, per 256 columns: [16] f16 d, padded to 64 bytes, then the pairs of 8 groups.
template <typename Simd>
struct PanelTernary : UnsignedCodes<Simd, 1, 1, false, 2> {  // codes stand for q - 1
  static constexpr std::size_t kCodes = 64, kBlock = kCodes + 8 * kPairBytes;
  static constexpr std::size_t kSweep = kBlock / 8;
  const std::byte* panel;

  PanelTernary(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  const std::byte* group(std::size_t g) const { return block(g) + kCodes + g % 8 * kPairBytes; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    return quad_of_pairs<Simd, Q>(group(g), v);
  }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::load_f16(block(g) + v * 2 * Simd::kLanes);
  }
};

/// IQ1 and IQ2: [16] i8 table of values, padded to 64 bytes; per 256 columns [16] f32 d,
/// [8 * Parts][16] i8 scales, then for each of 8 groups pairs (low 2 bits) and bits.
template <typename Simd, std::size_t Parts>
struct PanelThree : SignedCodes<Simd, Parts> {
  static constexpr std::size_t kHeader = 64, kScales = 64, kCodes = kScales + 128 * Parts;
  static constexpr std::size_t kGroupBytes = kPairBytes + kBitBytes;
  static constexpr std::size_t kBlock = kCodes + 8 * kGroupBytes;
  static constexpr std::size_t kSweep = kBlock / 8;
  typename Simd::Table table;
  const std::byte* panel;

  PanelThree(const std::byte* bytes, std::size_t)
      : table(Simd::table(bytes)), panel(bytes + kHeader) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  const std::byte* group(std::size_t g) const { return block(g) + kCodes + g % 8 * kGroupBytes; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    return Simd::lookup(table, Simd::bit_or(quad_of_pairs<Simd, Q>(group(g), v),
                                            quad_of_bits<Simd, Q, 2>(group(g) + kPairBytes, v)));
  }
  typename Simd::F scale(std::size_t g, std::size_t part, std::size_t v) const {
    return Simd::mul(
        Simd::load_f32(block(g) + v * 4 * Simd::kLanes),
        Simd::load_s8(block(g) + kScales + (g % 8 * Parts + part) * 16 + v * Simd::kLanes));
  }
};

}  // namespace lemma::cpu
