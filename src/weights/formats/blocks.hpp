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

/// 32 nibbles, a scale and an offset: x = d * q + m.
struct BlockQ4_1 {
  static constexpr std::size_t kElements = 32;
  std::uint16_t d;      ///< f16 scale
  std::uint16_t m;      ///< f16 offset
  std::uint8_t qs[16];  ///< as in BlockQ4_0
};

/// 32 codes of 5 bits, a scale and an offset: x = d * q + m.
struct BlockQ5_1 {
  static constexpr std::size_t kElements = 32;
  std::uint16_t d;      ///< f16 scale
  std::uint16_t m;      ///< f16 offset
  std::uint8_t qh[4];   ///< as in BlockQ5_0
  std::uint8_t qs[16];  ///< as in BlockQ4_0
};

/// 256 codes of 2 bits in 16 sub-blocks of 16, each with a 4-bit scale and a 4-bit minimum:
/// x = d * scale[j] * q - dmin * min[j].
struct BlockQ2_K {
  static constexpr std::size_t kElements = 256;
  std::uint8_t scales[16];  ///< scale in the low nibble, minimum in the high one
  std::uint8_t qs[64];      ///< see q2_k.cpp
  std::uint16_t d;          ///< f16 scale of the scales
  std::uint16_t dmin;       ///< f16 scale of the minimums
};

/// 256 codes of 3 bits in 16 sub-blocks of 16, each with a signed 6-bit scale:
/// x = d * scale[j] * (q - 4).
struct BlockQ3_K {
  static constexpr std::size_t kElements = 256;
  std::uint8_t hmask[32];   ///< bit e / 32 of byte e % 32 is bit 2 of element e's code
  std::uint8_t qs[64];      ///< low 2 bits, placed as in BlockQ2_K
  std::uint8_t scales[12];  ///< 16 scales of 6 bits; see q3_k.cpp
  std::uint16_t d;          ///< f16 scale of the scales
};

/// BlockQ4_K with codes of 5 bits.
struct BlockQ5_K {
  static constexpr std::size_t kElements = 256;
  std::uint16_t d;          ///< f16 scale of the scales
  std::uint16_t dmin;       ///< f16 scale of the minimums
  std::uint8_t scales[12];  ///< as in BlockQ4_K
  std::uint8_t qh[32];      ///< bit j of byte i is bit 4 of element i of sub-block j
  std::uint8_t qs[128];     ///< low 4 bits, placed as in BlockQ4_K
};

/// 256 signed bytes and one f32 scale: x = d * qs[i].
struct BlockQ8_K {
  static constexpr std::size_t kElements = 256;
  float d;
  std::int8_t qs[256];
  std::int16_t sums[16];  ///< of each 16 codes
};

/// Steps of -1, 0, 1 and a shift, 8 elements a grid point: x = d * (2 s + 1) * (g +- 1/8).
struct BlockIQ1_S {
  static constexpr std::size_t kElements = 256;
  std::uint16_t d;
  std::uint8_t qs[32];  ///< low 8 bits of the grid index of elements 8 i .. 8 i + 7
  /// For each 32 elements: 4 times the index's upper 3 bits, a 3-bit scale, the shift's sign.
  std::uint16_t qh[8];
};

/// As BlockIQ1_S, a scale for each 16 elements and a shift for each 8.
struct BlockIQ1_M {
  static constexpr std::size_t kElements = 256;
  std::uint8_t qs[32];
  std::uint8_t qh[16];  ///< nibble i: upper 3 bits of index i, the shift's sign
  /// Four 3-bit scales each; the upper 4 bits of the four words are the f16 scale.
  std::uint16_t scales[4];
};

/// Magnitudes 8, 25, 43, 8 elements a grid point, and signs: x = d * (2 s + 1) / 8 * g.
struct BlockIQ2_XXS {
  static constexpr std::size_t kElements = 256;
  std::uint16_t d;
  struct Part {                ///< 32 elements
    std::uint8_t index[4];     ///< grid points
    std::uint32_t sign_scale;  ///< 4 times 7 sign bits, then a 4-bit scale
  } parts[8];
};

struct BlockIQ2_XS {
  static constexpr std::size_t kElements = 256;
  std::uint16_t d;
  std::uint16_t qs[32];    ///< 9 bits of grid index, 7 sign bits
  std::uint8_t scales[8];  ///< 4 bits for each 16 elements
};

struct BlockIQ2_S {
  static constexpr std::size_t kElements = 256;
  std::uint16_t d;
  std::uint8_t qs[32];     ///< low 8 bits of the grid index
  std::uint8_t signs[32];  ///< bit i of byte j: element 8 j + i is negative
  std::uint8_t qh[8];      ///< upper 2 bits of four indices
  std::uint8_t scales[8];  ///< 4 bits for each 16 elements
};

/// Magnitudes 4 .. 62, 4 elements a grid point, and signs: x = d * (2 s + 1) / 4 * g.
struct BlockIQ3_XXS {
  static constexpr std::size_t kElements = 256;
  std::uint16_t d;
  std::uint8_t qs[64];          ///< grid points
  std::uint32_t sign_scale[8];  ///< for each 32 elements, as in BlockIQ2_XXS
};

/// Magnitudes 1, 3 .. 15, 4 elements a grid point, and signs: x = d * (2 s + 1) * g.
struct BlockIQ3_S {
  static constexpr std::size_t kElements = 256;
  std::uint16_t d;
  std::uint8_t qs[64];     ///< low 8 bits of the grid index
  std::uint8_t qh[8];      ///< bit i of byte j: bit 8 of index 8 j + i
  std::uint8_t signs[32];  ///< as in BlockIQ2_S
  std::uint8_t scales[4];  ///< 4 bits for each 32 elements
};

/// 32 nibbles that choose from 16 unevenly spaced values: x = d * value[q].
struct BlockIQ4_NL {
  static constexpr std::size_t kElements = 32;
  std::uint16_t d;      ///< f16 scale, of either sign
  std::uint8_t qs[16];  ///< as in BlockQ4_0
};

/// IQ4_NL's values in 8 sub-blocks of 32 with signed 6-bit scales: x = d * scale[j] * value[q].
struct BlockIQ4_XS {
  static constexpr std::size_t kElements = 256;
  std::uint16_t d;
  std::uint16_t scales_h;    ///< bits 2 j, 2 j + 1: upper bits of scale j
  std::uint8_t scales_l[4];  ///< low 4 bits of the scales
  std::uint8_t qs[128];      ///< 16 bytes a sub-block, each as in BlockQ4_0
};

/// 256 ternary digits, five a byte, and one scale: x = d * (q - 1).
struct BlockTQ1_0 {
  static constexpr std::size_t kElements = 256;
  std::uint8_t qs[48];
  std::uint8_t qh[4];
  std::uint16_t d;
};

/// 256 codes of 2 bits and one scale: x = d * (q - 1).
struct BlockTQ2_0 {
  static constexpr std::size_t kElements = 256;
  std::uint8_t qs[64];  ///< placed as in BlockQ2_K
  std::uint16_t d;
};

/// 32 floats of 4 bits (E2M1) and a power of two (E8M0).
struct BlockMXFP4 {
  static constexpr std::size_t kElements = 32;
  std::uint8_t e;
  std::uint8_t qs[16];  ///< as in BlockQ4_0
};

/// 64 floats of 4 bits (E2M1), a scale of 8 bits (unsigned E4M3) for each 16.
struct BlockNVFP4 {
  static constexpr std::size_t kElements = 64;
  std::uint8_t d[4];
  std::uint8_t qs[32];  ///< 8 bytes a sub-block: byte i holds its elements i (low) and i + 8
};

#pragma pack(pop)

static_assert(sizeof(BlockQ8_0) == 34 && alignof(BlockQ8_0) == 1);
static_assert(sizeof(BlockQ4_0) == 18 && alignof(BlockQ4_0) == 1);
static_assert(sizeof(BlockQ5_0) == 22 && alignof(BlockQ5_0) == 1);
static_assert(sizeof(BlockQ4_K) == 144 && alignof(BlockQ4_K) == 1);
static_assert(sizeof(BlockQ6_K) == 210 && alignof(BlockQ6_K) == 1);
static_assert(sizeof(BlockQ4_1) == 20 && alignof(BlockQ4_1) == 1);
static_assert(sizeof(BlockQ5_1) == 24 && alignof(BlockQ5_1) == 1);
static_assert(sizeof(BlockQ2_K) == 84 && alignof(BlockQ2_K) == 1);
static_assert(sizeof(BlockQ3_K) == 110 && alignof(BlockQ3_K) == 1);
static_assert(sizeof(BlockQ5_K) == 176 && alignof(BlockQ5_K) == 1);
static_assert(sizeof(BlockQ8_K) == 292 && alignof(BlockQ8_K) == 1);
static_assert(sizeof(BlockIQ1_S) == 50 && alignof(BlockIQ1_S) == 1);
static_assert(sizeof(BlockIQ1_M) == 56 && alignof(BlockIQ1_M) == 1);
static_assert(sizeof(BlockIQ2_XXS) == 66 && alignof(BlockIQ2_XXS) == 1);
static_assert(sizeof(BlockIQ2_XS) == 74 && alignof(BlockIQ2_XS) == 1);
static_assert(sizeof(BlockIQ2_S) == 82 && alignof(BlockIQ2_S) == 1);
static_assert(sizeof(BlockIQ3_XXS) == 98 && alignof(BlockIQ3_XXS) == 1);
static_assert(sizeof(BlockIQ3_S) == 110 && alignof(BlockIQ3_S) == 1);
static_assert(sizeof(BlockIQ4_NL) == 18 && alignof(BlockIQ4_NL) == 1);
static_assert(sizeof(BlockIQ4_XS) == 136 && alignof(BlockIQ4_XS) == 1);
static_assert(sizeof(BlockTQ1_0) == 54 && alignof(BlockTQ1_0) == 1);
static_assert(sizeof(BlockTQ2_0) == 66 && alignof(BlockTQ2_0) == 1);
static_assert(sizeof(BlockMXFP4) == 17 && alignof(BlockMXFP4) == 1);
static_assert(sizeof(BlockNVFP4) == 36 && alignof(BlockNVFP4) == 1);

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
