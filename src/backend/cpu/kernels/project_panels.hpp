// SPDX-License-Identifier: Apache-2.0
// Readers of the packed panels of Q8_0, Q4_0, Q5_0 and Q6_K, which the packing of packing.cpp
// writes, for the tile of int8_tile.hpp. A reader gives the codes of 16 outputs x 4 columns
// (`quad`), scales and minimums; `kSweep` is how many bytes of the panel belong to 32 columns, and
// `kInOrder` whether lines are first read in the order in which they lie (but for those with
// scales).
#pragma once

#include "backend/cpu/kernels/int8_tile.hpp"

namespace lemma::cpu {

/// What readers of unsigned codes share: codes, up to Most, stand for q - Offset.
template <typename Simd, std::size_t Parts, int Offset, bool Minimum, int Most = 127>
struct UnsignedCodes {
  static constexpr std::size_t kParts = Parts;
  static constexpr int kOffset = Offset, kMost = Most, kFoldedMost = 127;
  static constexpr bool kMinimum = Minimum, kFolded = false, kSigned = false, kInOrder = false;
  static constexpr bool kExpands = Most > 15;  ///< whether codes are put together of two parts
  static typename Simd::I start(std::int32_t sum) { return Simd::set_int(-(sum * Offset)); }
  static typename Simd::I dot(typename Simd::I sum, typename Simd::I w, typename Simd::I a) {
    return Simd::dot_unsigned(sum, w, a);
  }
};

/// What readers of signed codes share.
template <typename Simd, std::size_t Parts>
struct SignedCodes {
  static constexpr std::size_t kParts = Parts;
  static constexpr int kOffset = Simd::kSignedOffset, kMost = 127, kFoldedMost = 127;
  static constexpr bool kMinimum = false, kFolded = false, kSigned = true, kExpands = false,
                        kInOrder = false;
  static typename Simd::I start(std::int32_t sum) { return Simd::set_int(-(sum * kOffset)); }
  static typename Simd::I dot(typename Simd::I sum, typename Simd::I w, typename Simd::I a) {
    return Simd::dot_signed(sum, w, a);
  }
};

/// Formats with one f16 scale in 32 columns: for each pair of groups [2][16] f16 scales, then the
/// codes of both, so that a panel is read from its first byte to its last. An odd last group has a
/// pair's scales for itself.
template <typename Simd, std::size_t GroupBytes, typename Codes>
struct PairedGroups : Codes {
  static constexpr std::size_t kSweep = 32 + GroupBytes;
  static constexpr bool kInOrder = true;
  const std::byte* panel;

  PairedGroups(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* pair(std::size_t g) const { return panel + g / 2 * (2 * kSweep); }
  const std::byte* codes(std::size_t g) const { return pair(g) + 64 + g % 2 * GroupBytes; }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::load_f16(pair(g) + g % 2 * 32 + v * 2 * Simd::kLanes);
  }
};

/// Q8_0: paired groups of [8][16][4] codes.
template <typename Simd>
struct PanelQ8_0 : PairedGroups<Simd, 512, SignedCodes<Simd, 1>> {
  using PairedGroups<Simd, 512, SignedCodes<Simd, 1>>::PairedGroups;
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    return Simd::signed_codes(this->codes(g) + Q * kVectorBytes + v * 4 * Simd::kLanes);
  }
};

/// Q4_0: paired groups of [4][16][4] bytes, the low nibble of vector q holding columns 4q.., the
/// high one columns 16 + 4q...
template <typename Simd>
struct PanelQ4_0 : PairedGroups<Simd, 256, UnsignedCodes<Simd, 1, 8, false, 15>> {
  using PairedGroups<Simd, 256, UnsignedCodes<Simd, 1, 8, false, 15>>::PairedGroups;
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const typename Simd::I pair =
        Simd::codes(this->codes(g) + Q % 4 * kVectorBytes + v * 4 * Simd::kLanes);
    return Simd::template bits<4, Q / 4 * 4>(pair);
  }
};

/// Q5_0: paired groups of [16][4] bytes of high bits, of which bit q belongs to columns 4q.., and
/// [4][16][4] bytes as in Q4_0. The bits come first since they are read first.
template <typename Simd>
struct PanelQ5_0 : PairedGroups<Simd, 256 + 64, UnsignedCodes<Simd, 1, 16, false, 31>> {
  using PairedGroups<Simd, 256 + 64, UnsignedCodes<Simd, 1, 16, false, 31>>::PairedGroups;
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const std::byte* const at = this->codes(g) + v * 4 * Simd::kLanes;
    const typename Simd::I high = Simd::template bits<1, Q, 4>(Simd::codes(at));
    const typename Simd::I low = Simd::codes(at + 64 + Q % 4 * kVectorBytes);
    return Simd::bit_or(Simd::template bits<4, Q / 4 * 4>(low), high);
  }
};

/// Q6_K, per 256 columns: [16] f16 d, padded to 64 bytes; [16][16] i8 scales; for each of 8 groups
/// [4][16][4] bytes with the low 4 bits as in Q4_0 between two of [16][4] bytes with the high 2
/// bits: bits 2q, 2q + 1 of vector h belong to columns 16 h + 4 q.. (So they lie as they are read.)
template <typename Simd>
struct PanelQ6_K : UnsignedCodes<Simd, 2, 32, false, 63> {
  static constexpr std::size_t kCodes = 64 + 256, kGroupBytes = 6 * kVectorBytes;
  static constexpr std::size_t kBlock = kCodes + 8 * kGroupBytes;
  static constexpr std::size_t kSweep = kBlock / 8;
  const std::byte* panel;

  PanelQ6_K(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const std::byte* const at = block(g) + kCodes + g % 8 * kGroupBytes + v * 4 * Simd::kLanes;
    const typename Simd::I high = Simd::codes(at + Q / 4 * 5 * kVectorBytes);
    const typename Simd::I low = Simd::codes(at + (1 + Q % 4) * kVectorBytes);
    return Simd::bit_or(Simd::template bits<4, Q / 4 * 4>(low),
                        Simd::template bits<2, Q % 4 * 2, 4>(high));
  }
  typename Simd::F scale(std::size_t g, std::size_t part, std::size_t v) const {
    return Simd::mul(Simd::load_f16(block(g) + v * 2 * Simd::kLanes),
                     Simd::load_s8(block(g) + 64 + (g % 8 * 2 + part) * 16 + v * Simd::kLanes));
  }
};

}  // namespace lemma::cpu
