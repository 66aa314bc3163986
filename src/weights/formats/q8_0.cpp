// SPDX-License-Identifier: Apache-2.0
// Q8_0: 32 elements in 34 bytes, 8.5 bits an element. Symmetric: x = d * q.
//
//   byte   0 1 | 2    3    ...  33
//          d   | q0   q1   ...  q31        d f16, q signed bytes
//
// Worked block: 00 38 | 02 fe 7f 00 ... has d = 0.5, so its elements are 1, -1, 63.5, 0, ...
//
// Error: the scale is a/127 (a the block's largest |x|) rounded up to f16, so no code clips and
// |error| <= d/2. Rounding up adds at most one part in 2^10: d/2 <= a/254 * (1 + 2^-10). A scale
// is at least 2^-24, whose half is below the floor. The product d * q has at most 18 significant
// bits, so decoding is exact.
#include "weights/formats/blocks.hpp"
#include "weights/formats/codec.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ8_0;

void decode(const Block& block, Elements<Block> out) noexcept {
  const float d = base::f16_to_f32(block.d);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = d * static_cast<float>(block.qs[i]);
}

void encode(ConstElements<Block> in, ConstElements<Block>, Block& block) noexcept {
  block.d = f16_at_least(largest_magnitude_of(in) / 127);
  const double d = base::f16_to_f32(block.d);
  const double inverse = d > 0 ? 1 / d : 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    block.qs[i] = static_cast<std::int8_t>(int_code(in[i], inverse, -127, 127));
  }
}

}  // namespace

constinit const FormatTraits kQ8_0Traits = {.format = Format::kQ8_0,
                                            .name = "Q8_0",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = 0.003942f,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale * 127,
                                            .dequantize = decode_row<Block, decode>,
                                            .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
