// SPDX-License-Identifier: Apache-2.0
// IQ1_S: 256 elements in 50 bytes, 1.5625 bits an element. Eight sub-blocks of 32 elements with a
// 3-bit scale s and a shift each; 8 elements are a point of a grid of 2048:
//   x = d * (2 s + 1) * (g +- 1/8) = (d/8 * (2 s + 1)) * (8 g +- 1),   g one of -1, 0, 1
//
//   byte   0 1 | 2 .... 33 | 34 ..... 49
//          d   | qs[32]    | qh[8], u16
//
//   qh     bits 15      14..12   11..9       8..6        5..3        2..0
//          shift down   s        point 3     point 2     point 1     point 0, upper 3 bits
//
// The low 8 bits of point k of sub-block j are qs[4 j + k].
//
// Worked block: d = 1 (00 3c), rest 0: s = 0 and point 0 = (-1, -1, ...), so x0 = -1 + 1/8 =
// -0.875.
//
// Error: the grid lacks some points, so elements of +-a (a the block's largest |x|) may come out
// near 0 and no bound much below a is possible. The encoder searches for the least squared error; a
// block of which an element would be off by more than 9/8 a is written as zeros, off by a.
#include "weights/formats/grids.hpp"
#include "weights/formats/iq1_fit.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockIQ1_S;

constexpr float kBound = 1.125f;
constexpr auto decode = decode_unpacked<Block, 32, false>;

void pack(const IQ1Block& from, Block& block) noexcept {
  block = {};
  block.d = from.d;
  for (std::size_t j = 0; j < 8; ++j) {
    int word = from.scales[j] << 12 | (from.down[j * 4] ? 1 : 0) << 15;
    for (std::size_t k = 0; k < 4; ++k) {
      const int point = from.points[j * 4 + k];
      block.qs[j * 4 + k] = static_cast<std::uint8_t>(point & 255);
      word |= point >> 8 << (3 * k);
    }
    block.qh[j] = static_cast<std::uint16_t>(word);
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(fit_iq1({32, 32}, in, weigh.error), block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound)) pack({}, block);
}

}  // namespace

void unpack(const BlockIQ1_S& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d) * 0.125f;
  for (std::size_t j = 0; j < 8; ++j) {
    const int word = block.qh[j];
    out.scales[j] = static_cast<float>(2 * (word >> 12 & 7) + 1);
    for (std::size_t k = 0; k < 4; ++k) {
      const int point = block.qs[j * 4 + k] | (word >> (3 * k) & 7) << 8;
      put_shifted_point(point, word >> 15 != 0, &out.codes[j * 32 + k * 8]);
    }
  }
}

constinit const FormatTraits kIQ1_STraits = {.format = Format::kIQ1_S,
                                             .name = "IQ1_S",
                                             .block_elements = Block::kElements,
                                             .block_bytes = sizeof(Block),
                                             .relative_error_bound = kBound,
                                             .absolute_error_floor = kSmallestScale,
                                             .largest_magnitude = kLargestScale,
                                             .dequantize = decode_row<Block, decode>,
                                             .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
