// SPDX-License-Identifier: Apache-2.0
// IQ4_NL: 32 elements in 18 bytes, 4.5 bits an element. Nibbles choose from a table that is denser
// near zero, where weights are: x = d * value[q].
//
//   byte   0 1 | 2        3        ...  17
//          d   | q16 q0   q17 q1   ...  q31 q15      (high nibble, low nibble)
//
//   q      0    1    2   3   4   5   6   7  8 9  10 11 12 13 14 15
//   value  -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
//
// Worked block: 00 b8 | 08 ... has d = -0.5; q0 = 8 gives x0 = -0.5, and q16 = 0 gives x16 = 63.5.
//
// Error, by the plain encoding: d = a/113 rounded up to f16 (a the block's largest |x|), so nothing
// clips, and neighbouring values are at most 24 apart: |error| <= 12 d <= 12/113 * (1 + 2^-10) a =
// 0.1063 a. The encoder looks for a scale, of either sign, with a smaller squared error and may use
// up to the bound below. Zero is not in the table: it becomes d.
#include "weights/formats/codebook.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockIQ4_NL;

constexpr float kBound = 0.13f;
constexpr auto decode = decode_unpacked<Block, 32, false>;

void encode_with(ConstElements<Block> in, std::uint16_t scale, Block& block) noexcept {
  block = {};
  block.d = scale;
  const double d = base::f16_to_f32(scale);
  const double inverse = d != 0 ? 1 / d : 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    put_split_nibble(block.qs, i, kNearestIQ4.nibble(in[i] * inverse));
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  encode_with(in, f16_nearest(IQ4Codes::fit(in, weigh.error, kBound * largest_magnitude_of(in))),
              block);
  if (keeps_bound<Block, decode>(in, weigh, block, kBound)) return;
  encode_with(in, f16_at_least(largest_magnitude_of(in) / IQ4Codes::kReach), block);
}

}  // namespace

void unpack(const BlockIQ4_NL& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d);
  out.scales[0] = 1.f;
  for (std::size_t i = 0; i < Block::kElements; ++i) {
    out.codes[i] = kIQ4Values[split_nibble(block.qs, i)];
  }
}

constinit const FormatTraits kIQ4_NLTraits = {.format = Format::kIQ4_NL,
                                              .name = "IQ4_NL",
                                              .block_elements = Block::kElements,
                                              .block_bytes = sizeof(Block),
                                              .relative_error_bound = kBound,
                                              .absolute_error_floor = 12 * kSmallestScale,
                                              .largest_magnitude = kLargestScale * IQ4Codes::kReach,
                                              .dequantize = decode_row<Block, decode>,
                                              .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
