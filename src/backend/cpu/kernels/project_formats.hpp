// SPDX-License-Identifier: Apache-2.0
// Readers of the packed panels of the formats beyond project_panels.hpp's, for the tile of
// int8_tile.hpp. Codes of 16 outputs x 4 columns are 64 bytes; a group of 32 columns has eight such
// quads, of which several share the bits of a byte:
//
//   pairs     [2][16][4] bytes: bits 2 q, 2 q + 1 of vector h hold quad 4 h + q
//   bits      [16][4] bytes: bit q holds quad q
//   nibbles   [4][16][4] bytes: vector q holds quad q (low) and quad q + 4 (high)
#pragma once

#include "backend/cpu/kernels/project_panels.hpp"

namespace lemma::cpu {

inline constexpr std::size_t kPairBytes = 128, kBitBytes = 64, kNibbleBytes = 256;

template <typename Simd, std::size_t Q>
typename Simd::I quad_of_pairs(const std::byte* group, std::size_t v) {
  return Simd::template bits<2, Q % 4 * 2>(
      Simd::codes(group + Q / 4 * kVectorBytes + v * 4 * Simd::kLanes));
}

template <typename Simd, std::size_t Q, int To>
typename Simd::I quad_of_bits(const std::byte* group, std::size_t v) {
  return Simd::template bits<1, Q, To>(Simd::codes(group + v * 4 * Simd::kLanes));
}

template <typename Simd, std::size_t Q>
typename Simd::I quad_of_nibbles(const std::byte* group, std::size_t v) {
  return Simd::template bits<4, Q / 4 * 4>(
      Simd::codes(group + Q % 4 * kVectorBytes + v * 4 * Simd::kLanes));
}

/// Q4_1, Q5_1 (`High`), per 32 columns: [16] f16 d, [16] f16 -m, bits in Q5_1, nibbles.
template <typename Simd, bool High>
struct PanelOffset : UnsignedCodes<Simd, 1, 0, true, High ? 31 : 15> {
  static constexpr std::size_t kHigh = 64, kCodes = kHigh + (High ? kBitBytes : 0);
  static constexpr std::size_t kGroupBytes = kCodes + kNibbleBytes;
  static constexpr std::size_t kSweep = kGroupBytes;
  static constexpr bool kInOrder = true;
  const std::byte* panel;

  PanelOffset(const std::byte* bytes, std::size_t) : panel(bytes) {}
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const std::byte* const group = panel + g * kGroupBytes;
    if constexpr (!High) return quad_of_nibbles<Simd, Q>(group + kCodes, v);
    const typename Simd::I high = quad_of_bits<Simd, Q, 4>(group + kHigh, v);
    return Simd::bit_or(quad_of_nibbles<Simd, Q>(group + kCodes, v), high);
  }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::load_f16(panel + g * kGroupBytes + v * 2 * Simd::kLanes);
  }
  typename Simd::F minimum(std::size_t g, std::size_t v) const {
    return Simd::load_f16(panel + g * kGroupBytes + 32 + v * 2 * Simd::kLanes);
  }
};

/// Q4_K, per 256 columns: [16] f16 d, [16] f16 dmin; [4][16] bytes with the lower 4 bits of scales
/// of groups j (low) and j + 4 (high), the same of minimums, [4][16] bytes with the upper 2 bits of
/// all four; then the nibbles of 8 groups. Scales and minimums are put together once for a block.
template <typename Simd>
struct PanelQ4_K : UnsignedCodes<Simd, 1, 0, true, 15> {
  static constexpr std::size_t kScales = 64, kCodes = kScales + 192;
  static constexpr std::size_t kBlock = kCodes + 8 * kNibbleBytes;
  static constexpr std::size_t kSweep = kBlock / 8;
  const std::byte* panel;

  PanelQ4_K(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    return quad_of_nibbles<Simd, Q>(block(g) + kCodes + g % 8 * kNibbleBytes, v);
  }
  /// To be asked for before the group's minimum.
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    if (block(g) != unpacked_) unpack(block(g));
    return Simd::mul(Simd::load_f16(block(g) + v * 2 * Simd::kLanes),
                     Simd::load_u8(numbers_ + g % 8 * 16 + v * Simd::kLanes));
  }
  typename Simd::F minimum(std::size_t g, std::size_t v) const {
    return Simd::mul(Simd::load_f16(block(g) + 32 + v * 2 * Simd::kLanes),
                     Simd::load_u8(numbers_ + 128 + g % 8 * 16 + v * Simd::kLanes));
  }

 private:
  void unpack(const std::byte* block) const {
    unpacked_ = block;
    LEMMA_UNROLL
    for (std::size_t i = 0; i < 64; i += 4 * Simd::kLanes) {
      const std::byte* const at = block + kScales + i;
      const auto scales = Simd::codes(at), minimums = Simd::codes(at + 64);
      const auto upper = Simd::codes(at + 128);
      put<0>(i, Simd::template bits<4, 0>(scales), upper);
      put<1>(i, Simd::template bits<4, 4>(scales), upper);
      put<2>(i, Simd::template bits<4, 0>(minimums), upper);
      put<3>(i, Simd::template bits<4, 4>(minimums), upper);
    }
  }
  template <int Quarter>
  void put(std::size_t i, typename Simd::I lower, typename Simd::I upper) const {
    Simd::store_codes(numbers_ + Quarter * 64 + i,
                      Simd::template or_bits<2, 2 * Quarter, 4>(lower, upper));
  }

  mutable const std::byte* unpacked_ = nullptr;  ///< the block whose numbers are ready
  alignas(64) mutable std::byte numbers_[256];   ///< [8][16] scales, [8][16] minimums
};

/// Q5_K, per 256 columns: [16] f16 d, [16] f16 dmin, [8][16] u8 scales, [8][16] u8 minimums, then
/// for each of 8 groups bits and nibbles (low 4 bits).
template <typename Simd>
struct PanelQ5_K : UnsignedCodes<Simd, 1, 0, true, 31> {
  static constexpr std::size_t kScales = 64, kMinimums = kScales + 128, kCodes = kMinimums + 128;
  static constexpr std::size_t kGroupBytes = kNibbleBytes + kBitBytes;
  static constexpr std::size_t kBlock = kCodes + 8 * kGroupBytes;
  static constexpr std::size_t kSweep = kBlock / 8;
  const std::byte* panel;

  PanelQ5_K(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  const std::byte* group(std::size_t g) const { return block(g) + kCodes + g % 8 * kGroupBytes; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const typename Simd::I high = quad_of_bits<Simd, Q, 4>(group(g), v);
    return Simd::bit_or(quad_of_nibbles<Simd, Q>(group(g) + kBitBytes, v), high);
  }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::mul(Simd::load_f16(block(g) + v * 2 * Simd::kLanes),
                     Simd::load_u8(block(g) + kScales + g % 8 * 16 + v * Simd::kLanes));
  }
  typename Simd::F minimum(std::size_t g, std::size_t v) const {
    return Simd::mul(Simd::load_f16(block(g) + 32 + v * 2 * Simd::kLanes),
                     Simd::load_u8(block(g) + kMinimums + g % 8 * 16 + v * Simd::kLanes));
  }
};

/// Q8_K, per 256 columns: [16] f32 d, then [8][8][16][4] codes.
template <typename Simd>
struct PanelQ8_K : SignedCodes<Simd, 1> {
  static constexpr std::size_t kCodes = 64, kGroupBytes = 512, kBlock = kCodes + 8 * kGroupBytes;
  static constexpr std::size_t kSweep = kBlock / 8;
  const std::byte* panel;

  PanelQ8_K(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  const std::byte* group(std::size_t g) const { return block(g) + kCodes + g % 8 * kGroupBytes; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    return Simd::signed_codes(group(g) + Q * kVectorBytes + v * 4 * Simd::kLanes);
  }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::load_f32(block(g) + v * 4 * Simd::kLanes);
  }
};

/// IQ3_XXS, IQ3_S, IQ4_XS: [16] i8 table of values, padded to 64 bytes; per 256 columns [16] f32 d,
/// [8 * Parts][16] i8 scales, then for each of 8 groups nibbles.
template <typename Simd, std::size_t Parts>
struct PanelTable : SignedCodes<Simd, Parts> {
  static constexpr std::size_t kHeader = 64, kScales = 64, kCodes = kScales + 128 * Parts;
  static constexpr std::size_t kGroupBytes = kNibbleBytes;
  static constexpr std::size_t kBlock = kCodes + 8 * kGroupBytes;
  static constexpr std::size_t kSweep = kBlock / 8;
  static constexpr bool kInOrder = true;
  typename Simd::Table table;
  const std::byte* panel;

  PanelTable(const std::byte* bytes, std::size_t)
      : table(Simd::table(bytes)), panel(bytes + kHeader) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  const std::byte* group(std::size_t g) const { return block(g) + kCodes + g % 8 * kGroupBytes; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    return Simd::lookup(table, quad_of_nibbles<Simd, Q>(group(g), v));
  }
  typename Simd::F scale(std::size_t g, std::size_t part, std::size_t v) const {
    return Simd::mul(
        Simd::load_f32(block(g) + v * 4 * Simd::kLanes),
        Simd::load_s8(block(g) + kScales + (g % 8 * Parts + part) * 16 + v * Simd::kLanes));
  }
};

/// IQ4_NL: the table as above; then, as in Q4_0, paired groups of nibbles.
template <typename Simd>
struct PanelHalves : PairedGroups<Simd, kNibbleBytes, SignedCodes<Simd, 1>> {
  typename Simd::Table table;

  PanelHalves(const std::byte* bytes, std::size_t)
      : PairedGroups<Simd, kNibbleBytes, SignedCodes<Simd, 1>>(bytes + 64, 0),
        table(Simd::table(bytes)) {}
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    return Simd::lookup(table, quad_of_nibbles<Simd, Q>(this->codes(g), v));
  }
};

/// Formats of E2M1 values, whose scales are one byte: the table as above, its values raised by 12
/// to 0..24; per four groups (two where scales cover 16 columns) [4][16] scales, then nibbles of
/// each. At the end of a panel groups may be missing.
template <typename Simd, std::size_t Parts>
struct ByteScales : UnsignedCodes<Simd, Parts, 12 + Simd::kSignedOffset, false, 24> {
  static constexpr std::size_t kGroups = 4 / Parts;
  static constexpr std::size_t kUnit = 64 + kGroups * kNibbleBytes;
  static constexpr std::size_t kSweep = kUnit / kGroups;
  static constexpr bool kInOrder = true;
  typename Simd::Table table;
  const std::byte* panel;

  ByteScales(const std::byte* bytes, std::size_t) : table(Simd::table(bytes)), panel(bytes + 64) {}
  const std::byte* unit(std::size_t g) const { return panel + g / kGroups * kUnit; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const std::byte* const group = unit(g) + 64 + g % kGroups * kNibbleBytes;
    return Simd::lookup(table, quad_of_nibbles<Simd, Q>(group, v));
  }
  const std::byte* scale_at(std::size_t g, std::size_t part, std::size_t v) const {
    return unit(g) + (g % kGroups * Parts + part) * 16 + v * Simd::kLanes;
  }
};

/// MXFP4.
template <typename Simd>
struct PanelPowers : ByteScales<Simd, 1> {
  using ByteScales<Simd, 1>::ByteScales;
  typename Simd::F scale(std::size_t g, std::size_t part, std::size_t v) const {
    return Simd::load_e8m0(this->scale_at(g, part, v));
  }
};

/// NVFP4.
template <typename Simd>
struct PanelEights : ByteScales<Simd, 2> {
  using ByteScales<Simd, 2>::ByteScales;
  typename Simd::F scale(std::size_t g, std::size_t part, std::size_t v) const {
    return Simd::load_e4m3(this->scale_at(g, part, v));
  }
};

}  // namespace lemma::cpu
