// SPDX-License-Identifier: Apache-2.0
// The blocks of the quantized formats as they lie in a file, little-endian, byte for byte GGML's.
// Each format's own file draws its layout and says what the bits mean; kernels include this header
// and follow those files. The structs are packed: they have alignment 1 because a row may start at
// any byte that its container allows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lemma::weights {

#pragma pack(push, 1)

/// 32 signed bytes and one scale: x = d * qs[i].
struct BlockQ8_0 {
  static constexpr std::size_t kElements = 32;
  std::uint16_t d;     ///< f16 scale
  std::int8_t qs[32];  ///< element i
};

/// 32 nibbles and one scale: x = d * (q - 8).
struct BlockQ4_0 {
  static constexpr std::size_t kElements = 32;
  std::uint16_t d;      ///< f16 scale, of either sign
  std::uint8_t qs[16];  ///< element i in the low nibble of byte i, element i + 16 in the high one
};

/// 32 codes of 5 bits and one scale: x = d * (q - 16).
struct BlockQ5_0 {
  static constexpr std::size_t kElements = 32;
  std::uint16_t d;      ///< f16 scale, of either sign
  std::uint8_t qh[4];   ///< bit 4 of element i is bit i % 8 of byte i / 8
  std::uint8_t qs[16];  ///< low 4 bits, placed as in BlockQ4_0
};

/// 256 nibbles in 8 sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum:
/// x = d * scale[j] * q - dmin * min[j].
struct BlockQ4_K {
  static constexpr std::size_t kElements = 256;
  std::uint16_t d;          ///< f16 scale of the scales
  std::uint16_t dmin;       ///< f16 scale of the minimums
  std::uint8_t scales[12];  ///< 8 scales and 8 minimums of 6 bits; see q4_k.cpp
  std::uint8_t qs[128];     ///< 4 groups of 32 bytes: low nibbles sub-block 2g, high 2g + 1
};

/// 256 codes of 6 bits in 16 sub-blocks of 16, each with a signed 8-bit scale:
/// x = d * scales[j] * (q - 32).
struct BlockQ6_K {
  static constexpr std::size_t kElements = 256;
  std::uint8_t ql[128];    ///< low 4 bits; see q6_k.cpp
  std::uint8_t qh[64];     ///< high 2 bits; see q6_k.cpp
  std::int8_t scales[16];  ///< sub-block j holds the elements 16 j .. 16 j + 15
  std::uint16_t d;         ///< f16 scale of the scales
};

#pragma pack(pop)

static_assert(sizeof(BlockQ8_0) == 34 && alignof(BlockQ8_0) == 1);
static_assert(sizeof(BlockQ4_0) == 18 && alignof(BlockQ4_0) == 1);
static_assert(sizeof(BlockQ5_0) == 22 && alignof(BlockQ5_0) == 1);
static_assert(sizeof(BlockQ4_K) == 144 && alignof(BlockQ4_K) == 1);
static_assert(sizeof(BlockQ6_K) == 210 && alignof(BlockQ6_K) == 1);

/// The 6-bit scale and minimum of one sub-block of Q4_K.
struct ScaleMin {
  std::uint8_t scale;
  std::uint8_t min;
};

/// Unpacks the pair of sub-block `j` (0..7) from the 12 bytes of BlockQ4_K::scales.
constexpr ScaleMin unpack_scale_min(const std::uint8_t* scales, std::size_t j) noexcept {
  if (j < 4) {
    return {static_cast<std::uint8_t>(scales[j] & 63),
            static_cast<std::uint8_t>(scales[j + 4] & 63)};
  }
  return {static_cast<std::uint8_t>((scales[j + 4] & 15) | (scales[j - 4] >> 6 << 4)),
          static_cast<std::uint8_t>((scales[j + 4] >> 4) | (scales[j] >> 6 << 4))};
}

}  // namespace lemma::weights
