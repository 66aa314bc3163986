// SPDX-License-Identifier: Apache-2.0
// Q8_0: 32 elements in 34 bytes, 8.5 bits an element. Symmetric: x = d * q.
//
//   byte   0 1 | 2    3    ...  33
//          d   | q0   q1   ...  q31        d f16, q signed bytes
//
// Worked block: 00 38 | 02 fe 7f 00 ... has d = 0.5, so its elements are 1, -1, 63.5, 0, ...
//
// Error: the block's element of largest magnitude a stands on a code k of at most 127 and the scale
// is a/k rounded up to f16, so no code clips and |error| <= d/2. The encoder takes the k from 120
// to 127 of least error, so d/2 <= a/240 * (1 + 2^-10): near-equal steps round 32 elements to quite
// different errors, and the best of eight leaves a fifth less. A scale is at least 2^-24, whose
// half is below the floor. The product d * q has at most 18 significant bits, so decoding is exact.
#include "weights/formats/blocks.hpp"
#include "weights/formats/codec.hpp"
#include "weights/formats/fit.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ8_0;

void decode(const Block& block, Elements<Block> out) noexcept {
  const float d = base::f16_to_f32(block.d);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = d * static_cast<float>(block.qs[i]);
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  constexpr int kLargestCode = 127, kSteps = 8;
  const double a = largest_magnitude_of(in);
  double least = std::numeric_limits<double>::infinity();
  block.d = 0;
  for (int k = kLargestCode; k > kLargestCode - kSteps; --k) {
    const std::uint16_t scale = f16_at_least(a / k);
    const double error = squared_error(in, weigh.error, base::f16_to_f32(scale), 0, -k, k);
    if (error < least) least = error, block.d = scale;
  }
  const double d = base::f16_to_f32(block.d);
  const double inverse = d > 0 ? 1 / d : 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    block.qs[i] = static_cast<std::int8_t>(int_code(in[i], inverse, -kLargestCode, kLargestCode));
  }
}

}  // namespace

constinit const FormatTraits kQ8_0Traits = {.format = Format::kQ8_0,
                                            .name = "Q8_0",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = 0.004172f,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale * 127,
                                            .dequantize = decode_row<Block, decode>,
                                            .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
