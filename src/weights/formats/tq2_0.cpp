// SPDX-License-Identifier: Apache-2.0
// TQ2_0: 256 elements in 66 bytes, 2.0625 bits an element. Ternary weights: x = d * (q - 1), q in
// 0..2 (3 decodes too).
//
//   byte   0 ..... 63 | 64 65
//          qs         | d         codes lie as q2_k.cpp draws them
//
// Worked block: qs[0] = 0x02, d = 0.5 (00 38): x0 = 0.5 and x32 = x64 = x96 = -0.5.
//
// Error: d is the f16 nearest to the scale of least squared error, which is at most a (the block's
// largest |x|) and at least half the smallest magnitude that it rounds away from zero, so an
// element is off by at most max(d/2, a - d) <= a. A tighter bound would need d near a, which ruins
// weights that are not ternary; weights that are ternary come out exact to f16.
#include "weights/formats/ternary.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockTQ2_0;

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  block = {};
  block.d = f16_nearest(fit_ternary(in, weigh.error));
  const double d = base::f16_to_f32(block.d), inverse = d > 0 ? 1 / d : 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    put_strided_pair(block.qs, i, static_cast<unsigned>(int_code(in[i], inverse, -1, 1) + 1));
  }
}

}  // namespace

void unpack(const BlockTQ2_0& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d);
  out.scales.fill(1.f);
  for (std::size_t i = 0; i < Block::kElements; ++i) {
    out.codes[i] = static_cast<std::int8_t>(strided_pair(block.qs, i) - 1);
  }
}

constinit const FormatTraits kTQ2_0Traits = {
    .format = Format::kTQ2_0,
    .name = "TQ2_0",
    .block_elements = Block::kElements,
    .block_bytes = sizeof(Block),
    .relative_error_bound = 1.f,
    .absolute_error_floor = kSmallestScale,
    .largest_magnitude = kLargestScale,
    .dequantize = decode_row<Block, (decode_unpacked<Block, 32, false>)>,
    .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
