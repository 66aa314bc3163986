// SPDX-License-Identifier: Apache-2.0
// IQ4_XS: 256 elements in 136 bytes, 4.25 bits an element. IQ4_NL's table in eight sub-blocks of
// 32, each with a signed 6-bit scale s[j], which an f16 scale multiplies:
//   x = (d * s[j]) * value[q]
//
//   byte   0 1 | 2 3      | 4 .. 7   | 8 .... 23   | 24 ... 39   | ... | 120 .. 135
//          d   | scales_h | scales_l | sub-block 0 | sub-block 1 | ... | sub-block 7
//
// The scales are stored as s[j] + 32: the low 4 bits of s[j] are the low (j even) or high nibble of
// scales_l[j / 2], the upper 2 are bits 2 j, 2 j + 1 of scales_h. A sub-block's nibbles lie as in
// IQ4_NL.
//
// Worked block: d = 0.5 (00 38), scales_h = 02 00, scales_l = 03: s[0] = 3 + 32 - 32. With
// byte 8 = 0x0f, x0 = (0.5 * 3) * 113 = 169.5 and x16 = (0.5 * 3) * -127 = -190.5.
//
// Error, by the plain encoding (a the block's largest |x|): d = a/(113 * 31) and the scales rounded
// up, so nothing clips; values are at most 24 apart: |error| <= 12 (a/113 + d) = 12/113 *
// (1 + 1/31) * (1 + 2^-10) a = 0.1098 a. The search may use up to the bound below.
#include "weights/formats/codebook.hpp"
#include "weights/formats/scaled_fit.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockIQ4_XS;
using Fit = ScaledFit<IQ4Codes, 8, 31>;

constexpr float kBound = 0.15f;
constexpr std::size_t kSize = 32;
constexpr auto decode = decode_unpacked<Block, kSize, false>;

void pack(const Fit& fit, ConstElements<Block> in, Block& block) noexcept {
  block = {};
  block.d = fit.d;
  for (std::size_t j = 0; j < 8; ++j) {
    const int s = fit.scales[j] + 32;
    block.scales_l[j / 2] |= static_cast<std::uint8_t>((s & 15) << (j % 2 * 4));
    block.scales_h = static_cast<std::uint16_t>(block.scales_h | s >> 4 << (2 * j));
    const double scale = fit.scale(j), inverse = scale != 0 ? 1 / scale : 0;
    for (std::size_t i = 0; i < kSize; ++i) {
      put_split_nibble(block.qs + j * 16, i, kNearestIQ4.nibble(in[j * kSize + i] * inverse));
    }
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(Fit::searched(in, weigh.error, kBound * largest_magnitude_of(in)), in, block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound)) pack(Fit::plain(in), in, block);
}

}  // namespace

void unpack(const BlockIQ4_XS& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d);
  for (std::size_t j = 0; j < 8; ++j) {
    const int low = block.scales_l[j / 2] >> (j % 2 * 4) & 15;
    const int high = block.scales_h >> (2 * j) & 3;
    out.scales[j] = static_cast<float>((low | high << 4) - 32);
    for (std::size_t i = 0; i < kSize; ++i) {
      out.codes[j * kSize + i] = kIQ4Values[split_nibble(block.qs + j * 16, i)];
    }
  }
}

constinit const FormatTraits kIQ4_XSTraits = {
    .format = Format::kIQ4_XS,
    .name = "IQ4_XS",
    .block_elements = Block::kElements,
    .block_bytes = sizeof(Block),
    .relative_error_bound = kBound,
    .absolute_error_floor = 12 * kSmallestScale,
    .largest_magnitude = kLargestScale * 31 * IQ4Codes::kReach,
    .dequantize = decode_row<Block, decode>,
    .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
