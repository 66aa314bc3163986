// SPDX-License-Identifier: Apache-2.0
// Q2_K: 256 elements in 84 bytes, 2.625 bits an element. Sixteen sub-blocks of 16 elements, each
// with a 4-bit scale s[j] and a 4-bit minimum m[j], which two f16 scales multiply:
//   x = (d * s[j]) * q - (dmin * m[j]),   q in 0..3
//
//   byte   0 ...... 15 | 16 ..... 47 | 48 ...... 79 | 80 81 | 82 83
//          m[j] s[j]   | qs, first   | qs, second   | d     | dmin      (high nibble, low nibble)
//                        128           128 elements
//
//   In a half, bits 2n, 2n + 1 of byte i hold element 32 n + i:   x96+i x64+i x32+i xi
//
// Worked block: d = 0.5 (00 38), dmin = 0.25 (00 34), scales[0] = 0x23: s[0] = 3, m[0] = 2. With
// qs[0] = 0x02, x0 = (0.5 * 3) * 2 - (0.25 * 2) = 2.5.
//
// Error, by the plain encoding (a the block's largest |x|), as in Q4_K: a range of at most 2a +
// dmin, dmin = a/15, is cut into 3 steps, and the step is rounded up to a multiple of 1/15 of the
// largest: |error| <= (2 + 1/15)/3 * (1 + 1/15) / 2 * a = 0.3675 a, with f16 rounding below
// 0.368 a. The search may use up to the bound below, which few blocks need.
#include "weights/formats/affine_fit.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ2_K;
using Fit = AffineFit<16, 15, 3>;

constexpr float kBound = 0.45f;
constexpr auto decode = decode_unpacked<Block, 16, true>;

void pack(const Fit& fit, ConstElements<Block> in, Block& block) noexcept {
  block = {};
  block.d = fit.d;
  block.dmin = fit.dmin;
  for (std::size_t j = 0; j < 16; ++j) {
    block.scales[j] = static_cast<std::uint8_t>(fit.pairs[j].scale | fit.pairs[j].min << 4);
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    put_strided_pair(block.qs, i, static_cast<unsigned>(fit.code(in[i], i / 16)));
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(Fit::searched(in, weigh.error, kBound * largest_magnitude_of(in)), in, block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound)) pack(Fit::plain(in), in, block);
}

}  // namespace

void unpack(const BlockQ2_K& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d);
  out.dmin = base::f16_to_f32(block.dmin);
  for (std::size_t j = 0; j < 16; ++j) {
    out.scales[j] = static_cast<float>(block.scales[j] & 15);
    out.minimums[j] = static_cast<float>(block.scales[j] >> 4);
  }
  for (std::size_t i = 0; i < Block::kElements; ++i) {
    out.codes[i] = static_cast<std::int8_t>(strided_pair(block.qs, i));
  }
}

constinit const FormatTraits kQ2_KTraits = {.format = Format::kQ2_K,
                                            .name = "Q2_K",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = kBound,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale * 15,
                                            .dequantize = decode_row<Block, decode>,
                                            .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
