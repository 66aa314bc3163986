// SPDX-License-Identifier: Apache-2.0
// Q5_0: 32 elements in 22 bytes, 5.5 bits an element. Symmetric: x = d * (q - 16), q in 0..31.
//
//   byte   0 1 | 2 3 4 5 | 6        7        ...  21
//          d   | qh      | q16 q0   q17 q1   ...  q31 q15      (high nibble, low nibble)
//
// The nibbles are the low 4 bits of the codes; bit i of qh, read as a little-endian u32, is bit 4
// of q[i]. d is an f16 of either sign, as in Q4_0.
//
// Worked block: 00 b8 | 01 00 01 00 | 90 ... has d = -0.5; q0 = 0 + 16 gives x0 = 0, and
// q16 = 9 + 16 gives x16 = -0.5 * (25 - 16) = -4.5.
//
// Error: with d = a/15 rounded up to f16 (a the block's largest |x|) nothing clips and |error| <=
// d/2 <= a/30 * (1 + 2^-10). The encoder looks for a scale of smaller squared error, which may
// cost an element up to the bound below. Decoding is exact (11 + 5 significant bits).
#include <array>

#include "weights/formats/blocks.hpp"
#include "weights/formats/codec.hpp"
#include "weights/formats/fit.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ5_0;

constexpr float kBound = 0.04f;

void decode(const Block& block, Elements<Block> out) noexcept {
  const float d = base::f16_to_f32(block.d);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int low = i < 16 ? block.qs[i] & 15 : block.qs[i - 16] >> 4;
    const int high = block.qh[i / 8] >> (i % 8) & 1;
    out[i] = d * static_cast<float>((low | high << 4) - 16);
  }
}

void encode_with(ConstElements<Block> in, std::uint16_t scale, Block& block) noexcept {
  const double d = base::f16_to_f32(scale);
  const double inverse = d != 0 ? 1 / d : 0;
  block = {};
  block.d = scale;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const int q = int_code(in[i], inverse, -16, 15) + 16;
    block.qs[i % 16] |= static_cast<std::uint8_t>((q & 15) << (i < 16 ? 0 : 4));
    block.qh[i / 8] |= static_cast<std::uint8_t>(q >> 4 << (i % 8));
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  const double a = largest_magnitude_of(in);
  encode_with(in, f16_nearest(fit_symmetric(in, weigh.error, 16, kBound * a)), block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound))
    encode_with(in, f16_at_least(a / 15), block);
}

}  // namespace

constinit const FormatTraits kQ5_0Traits = {.format = Format::kQ5_0,
                                            .name = "Q5_0",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = kBound,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale * 15,
                                            .dequantize = decode_row<Block, decode>,
                                            .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
