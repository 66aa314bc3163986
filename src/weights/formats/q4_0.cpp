// SPDX-License-Identifier: Apache-2.0
// Q4_0: 32 elements in 18 bytes, 4.5 bits an element. Symmetric: x = d * (q - 8), q in 0..15.
//
//   byte   0 1 | 2        3        ...  17
//          d   | q16 q0   q17 q1   ...  q31 q15      (high nibble, low nibble)
//
// d is an f16 of either sign: a negative one lets the code -8, which has no positive twin, stand
// for the largest positive element.
//
// Worked block: 00 b8 | 90 88 ... has d = -0.5; byte 2 gives x0 = -0.5 * (0 - 8) = 4 and
// x16 = -0.5 * (9 - 8) = -0.5; byte 3 gives x1 = x17 = 0.
//
// Error: with d = a/7 rounded up to f16 (a the block's largest |x|) nothing clips and |error| <=
// d/2 <= a/14 * (1 + 2^-10). The encoder looks for a scale of smaller squared error, which may
// cost an element up to the bound below. Decoding is exact (11 + 4 significant bits).
#include <array>

#include "weights/formats/blocks.hpp"
#include "weights/formats/codec.hpp"
#include "weights/formats/fit.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ4_0;

constexpr float kBound = 0.085f;

void decode(const Block& block, Elements<Block> out) noexcept {
  const float d = base::f16_to_f32(block.d);
  for (std::size_t i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block.qs[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((block.qs[i] >> 4) - 8);
  }
}

void encode_with(ConstElements<Block> in, std::uint16_t scale, Block& block) noexcept {
  const double d = base::f16_to_f32(scale);
  const double inverse = d != 0 ? 1 / d : 0;
  block.d = scale;
  for (std::size_t i = 0; i < 16; ++i) {
    const int low = int_code(in[i], inverse, -8, 7) + 8;
    const int high = int_code(in[i + 16], inverse, -8, 7) + 8;
    block.qs[i] = static_cast<std::uint8_t>(low | high << 4);
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  const double a = largest_magnitude_of(in);
  encode_with(in, f16_nearest(fit_symmetric(in, weigh.error, 8, kBound * a)), block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound))
    encode_with(in, f16_at_least(a / 7), block);
}

}  // namespace

constinit const FormatTraits kQ4_0Traits = {.format = Format::kQ4_0,
                                            .name = "Q4_0",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = kBound,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale * 7,
                                            .dequantize = decode_row<Block, decode>,
                                            .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
