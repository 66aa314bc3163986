// SPDX-License-Identifier: Apache-2.0
// Q4_1: 32 elements in 20 bytes, 5 bits an element. A scale and an offset: x = d * q + m, q in
// 0..15.
//
//   byte   0 1 | 2 3 | 4        5       ...  19
//          d   | m   | q16 q0   q17 q1  ...  q31 q15      (high nibble, low nibble)
//
// Worked block: 00 38 | 00 bc | 73 ... has d = 0.5, m = -1; q0 = 3 gives x0 = 0.5, and q16 = 7
// gives x16 = 2.5.
//
// Error, by the plain encoding (a the block's largest |x|): m is the smallest element rounded down
// to f16, at most a * 2^-10 below it, and d = (largest - m)/15 rounded up, so nothing clips and
// |error| <= d/2 <= (2 + 2^-10)/30 * (1 + 2^-10) a = 0.0668 a. The encoder searches for a smaller
// squared error and may use up to the bound below for it.
#include "weights/formats/offset_fit.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ4_1;
using Fit = OffsetFit<15>;

constexpr float kBound = 0.085f;
constexpr auto decode = decode_unpacked<Block, 32, true>;

void pack(const Fit& fit, ConstElements<Block> in, Block& block) noexcept {
  block = {};
  block.d = fit.d;
  block.m = fit.m;
  for (std::size_t i = 0; i < in.size(); ++i) {
    put_split_nibble(block.qs, i, fit.code(in[i]));
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(Fit::searched(in, weigh.error, kBound * largest_magnitude_of(in)), in, block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound)) pack(Fit::plain(in), in, block);
}

}  // namespace

void unpack(const BlockQ4_1& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d);
  out.dmin = -base::f16_to_f32(block.m);
  out.scales[0] = out.minimums[0] = 1.f;
  for (std::size_t i = 0; i < Block::kElements; ++i) {
    out.codes[i] = static_cast<std::int8_t>(split_nibble(block.qs, i));
  }
}

constinit const FormatTraits kQ4_1Traits = {.format = Format::kQ4_1,
                                            .name = "Q4_1",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = kBound,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale,
                                            .dequantize = decode_row<Block, decode>,
                                            .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
