// SPDX-License-Identifier: Apache-2.0
// IQ2_S: 256 elements in 82 bytes, 2.5625 bits an element. Sixteen sub-blocks of 16 elements with a
// 4-bit scale s each; the magnitudes of 8 elements are a point of a grid of 1024, the signs apart:
//   x = (d/8 * (2 s + 1)) * g,   |g| one of 8, 25, 43
//
//   byte   0 1 | 2 .... 33 | 34 ..... 65 | 66 .. 73 | 74 ..... 81
//          d   | qs[32]    | signs[32]   | qh[8]    | scales[8]
//
// Point j has its low 8 bits in qs[j] and its upper 2 in bits 2 (j % 4), 2 (j % 4) + 1 of qh[j /
// 4]. Bit i of signs[j] is set where element 8 j + i is negative. Scales lie as in IQ2_XS.
//
// Worked block: d = 1 (00 3c), signs[0] = 01, scales[0] = 01, rest 0: s = 1, point 0 = (8, 8, ...):
// x0 = 1/8 * 3 * -8 = -3 and x1 .. x7 = 3.
//
// Error, by the plain encoding (a the block's largest |x|): the scales just reach the largest
// magnitude, s' = d/8 * (2 s + 1) <= a/43 * (1 + 2^-10). For every way of calling 8 magnitudes
// small or large the grid has a point with 8 at the small ones and 25 or 43 at the large ones (256
// ways; a test looks). With 25.5 s' as the border no element is off by more than 18 s' = 0.419 a.
#include "weights/formats/grids.hpp"
#include "weights/formats/signed_grid.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockIQ2_S;

constexpr float kBound = 0.42f;
constexpr std::size_t kGroup = 16;  ///< elements that share a scale
constexpr auto decode = decode_unpacked<Block, kGroup, false>;

SignedGrid format() noexcept {
  static const GridSearch search(kIQ2_SGrid, 8, kIQ2Levels);
  return {search, kGroup, false, 0.125};
}

void pack(const SignedGridBlock& from, Block& block) noexcept {
  block = {};
  block.d = from.d;
  for (std::size_t j = 0; j < 32; ++j) {
    block.qs[j] = static_cast<std::uint8_t>(from.points[j] & 255);
    block.qh[j / 4] |= static_cast<std::uint8_t>(from.points[j] >> 8 << (j % 4 * 2));
    block.signs[j] = from.signs[j];
  }
  for (std::size_t j = 0; j < 16; ++j) {
    block.scales[j / 2] |= static_cast<std::uint8_t>(from.scales[j] << (j % 2 * 4));
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(search_signed_grid(format(), in, weigh.error), block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound))
    pack(plain_signed_grid(format(), in), block);
}

}  // namespace

void unpack(const BlockIQ2_S& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d) * 0.125f;
  for (std::size_t j = 0; j < 16; ++j) {
    out.scales[j] = static_cast<float>(2 * (block.scales[j / 2] >> (j % 2 * 4) & 15) + 1);
  }
  for (std::size_t j = 0; j < 32; ++j) {
    const int point = block.qs[j] | (block.qh[j / 4] >> (j % 4 * 2) & 3) << 8;
    put_signed_point(kIQ2_SGrid[static_cast<std::size_t>(point)], kIQ2Levels, block.signs[j],
                     &out.codes[j * 8]);
  }
}

constinit const FormatTraits kIQ2_STraits = {.format = Format::kIQ2_S,
                                             .name = "IQ2_S",
                                             .block_elements = Block::kElements,
                                             .block_bytes = sizeof(Block),
                                             .relative_error_bound = kBound,
                                             .absolute_error_floor = 70 * kSmallestScale,
                                             .largest_magnitude = kLargestScale * 43,
                                             .dequantize = decode_row<Block, decode>,
                                             .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
