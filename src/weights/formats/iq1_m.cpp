// SPDX-License-Identifier: Apache-2.0
// IQ1_M: 256 elements in 56 bytes, 1.75 bits an element. IQ1_S with a scale for each 16 elements
// and a shift for each 8:
//   x = d * (2 s + 1) * (g +- 1/8) = (d/8 * (2 s + 1)) * (8 g +- 1),   g one of -1, 0, 1
//
//   byte   0 .... 31 | 32 ... 47 | 48 ...... 55
//          qs[32]    | qh[16]    | scales[4], u16
//
//   qh       nibble j (low nibble first): upper 3 bits of point j, then 1 where it is shifted down
//   scales   bits 15..12      11..9   8..6   5..3   2..0
//            nibble j of d    s of sub-blocks 4 j + 3, 4 j + 2, 4 j + 1, 4 j
//
// Worked block: scales = 00 00 | 00 00 | 00 c0 | 00 30, rest 0: d = 1 (3c00), s = 0, point 0 =
// (-1, -1, ...), so x0 = -1 + 1/8 = -0.875.
//
// Error: the grid lacks some points, so elements of +-a (a the block's largest |x|) may come out
// near 0 and no bound much below a is possible. The encoder searches for the least squared error; a
// block of which an element would be off by more than 9/8 a is written as zeros, off by a.
#include "weights/formats/grids.hpp"
#include "weights/formats/iq1_fit.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockIQ1_M;

constexpr float kBound = 1.125f;
constexpr auto decode = decode_unpacked<Block, 16, false>;

void pack(const IQ1Block& from, Block& block) noexcept {
  block = {};
  for (std::size_t j = 0; j < 32; ++j) {
    const int high = from.points[j] >> 8 | (from.down[j] ? 8 : 0);
    block.qs[j] = static_cast<std::uint8_t>(from.points[j] & 255);
    block.qh[j / 2] |= static_cast<std::uint8_t>(high << (j % 2 * 4));
  }
  for (std::size_t j = 0; j < 4; ++j) {
    int word = (from.d >> (4 * j) & 15) << 12;
    for (std::size_t k = 0; k < 4; ++k) word |= from.scales[j * 4 + k] << (3 * k);
    block.scales[j] = static_cast<std::uint16_t>(word);
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(fit_iq1({16, 8}, in, weigh.error), block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound)) pack({}, block);
}

}  // namespace

void unpack(const BlockIQ1_M& block, Unpacked& out) noexcept {
  int d = 0;
  for (std::size_t j = 0; j < 4; ++j) {
    const int word = block.scales[j];
    d |= word >> 12 << (4 * j);
    for (std::size_t k = 0; k < 4; ++k) {
      out.scales[j * 4 + k] = static_cast<float>(2 * (word >> (3 * k) & 7) + 1);
    }
  }
  out.d = base::f16_to_f32(static_cast<std::uint16_t>(d)) * 0.125f;
  for (std::size_t j = 0; j < 32; ++j) {
    const int high = block.qh[j / 2] >> (j % 2 * 4) & 15;
    put_shifted_point(block.qs[j] | (high & 7) << 8, (high & 8) != 0, &out.codes[j * 8]);
  }
}

constinit const FormatTraits kIQ1_MTraits = {.format = Format::kIQ1_M,
                                             .name = "IQ1_M",
                                             .block_elements = Block::kElements,
                                             .block_bytes = sizeof(Block),
                                             .relative_error_bound = kBound,
                                             .absolute_error_floor = kSmallestScale,
                                             .largest_magnitude = kLargestScale,
                                             .dequantize = decode_row<Block, decode>,
                                             .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
