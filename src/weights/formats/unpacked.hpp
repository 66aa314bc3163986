// SPDX-License-Identifier: Apache-2.0
// A block with its bits taken apart: whole codes, one scale and one minimum a group of elements.
// Every format from Q4_1 on decodes this way; what the bits mean stands in the format's own file.
// Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "weights/formats/blocks.hpp"
#include "weights/formats/codec.hpp"

namespace lemma::weights::formats {

/// Element i of group j is (d * scales[j]) * codes[i] - dmin * minimums[j], in f32 and in this
/// order. Groups have 16 or 32 elements; what a format does not use is left as it is.
struct Unpacked {
  std::array<std::int8_t, 256> codes;
  float d;
  float dmin;
  std::array<float, 16> scales;    ///< whole numbers in a super-block, any in NVFP4
  std::array<float, 16> minimums;  ///< whole numbers
};

void unpack(const BlockQ4_1& block, Unpacked& out) noexcept;
void unpack(const BlockQ5_1& block, Unpacked& out) noexcept;
void unpack(const BlockQ2_K& block, Unpacked& out) noexcept;
void unpack(const BlockQ3_K& block, Unpacked& out) noexcept;
void unpack(const BlockQ5_K& block, Unpacked& out) noexcept;
void unpack(const BlockQ8_K& block, Unpacked& out) noexcept;
void unpack(const BlockIQ1_S& block, Unpacked& out) noexcept;
void unpack(const BlockIQ1_M& block, Unpacked& out) noexcept;
void unpack(const BlockIQ2_XXS& block, Unpacked& out) noexcept;
void unpack(const BlockIQ2_XS& block, Unpacked& out) noexcept;
void unpack(const BlockIQ2_S& block, Unpacked& out) noexcept;
void unpack(const BlockIQ3_XXS& block, Unpacked& out) noexcept;
void unpack(const BlockIQ3_S& block, Unpacked& out) noexcept;
void unpack(const BlockIQ4_NL& block, Unpacked& out) noexcept;
void unpack(const BlockIQ4_XS& block, Unpacked& out) noexcept;
void unpack(const BlockTQ1_0& block, Unpacked& out) noexcept;
void unpack(const BlockTQ2_0& block, Unpacked& out) noexcept;
void unpack(const BlockMXFP4& block, Unpacked& out) noexcept;
void unpack(const BlockNVFP4& block, Unpacked& out) noexcept;

/// Decodes through unpack(): `Group` elements share a scale and, with `Minimum`, a minimum.
template <typename Block, std::size_t Group, bool Minimum>
void decode_unpacked(const Block& block, Elements<Block> out) noexcept {
  Unpacked u;
  unpack(block, u);
  for (std::size_t j = 0; j < Block::kElements / Group; ++j) {
    const float scale = u.d * u.scales[j];
    const float minimum = Minimum ? u.dmin * u.minimums[j] : 0.f;
    for (std::size_t i = j * Group; i < (j + 1) * Group; ++i) {
      out[i] = scale * static_cast<float>(u.codes[i]);
      if constexpr (Minimum) out[i] -= minimum;
    }
  }
}

/// The nibble of element `i` of 32 where byte i % 16 holds element i % 16 (low) and its follower by
/// 16 (high).
constexpr std::uint8_t split_nibble(const std::uint8_t* qs, std::size_t i) noexcept {
  return static_cast<std::uint8_t>(i < 16 ? qs[i] & 15 : qs[i - 16] >> 4);
}

/// The 2-bit code of element `i` of 256 as Q2_K, Q3_K and TQ2_0 place it.
constexpr std::uint8_t strided_pair(const std::uint8_t* qs, std::size_t i) noexcept {
  return static_cast<std::uint8_t>(qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3);
}

inline void put_split_nibble(std::uint8_t* qs, std::size_t i, unsigned code) noexcept {
  qs[i % 16] |= static_cast<std::uint8_t>(code << (i < 16 ? 0 : 4));
}

inline void put_strided_pair(std::uint8_t* qs, std::size_t i, unsigned code) noexcept {
  qs[i / 128 * 32 + i % 32] |= static_cast<std::uint8_t>(code << (i % 128 / 32 * 2));
}

/// Where element i's bit or nibble lies in the formats of 8 sub-blocks of 32 (Q4_K, Q5_K).
constexpr std::uint8_t paired_nibble(const std::uint8_t* qs, std::size_t i) noexcept {
  return static_cast<std::uint8_t>(qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15);
}

inline void put_paired_nibble(std::uint8_t* qs, std::size_t i, unsigned code) noexcept {
  qs[i / 64 * 32 + i % 32] |= static_cast<std::uint8_t>(code << (i / 32 % 2 * 4));
}

}  // namespace lemma::weights::formats
