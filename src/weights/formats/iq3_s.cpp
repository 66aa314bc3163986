// SPDX-License-Identifier: Apache-2.0
// IQ3_S: 256 elements in 110 bytes, 3.4375 bits an element. Eight sub-blocks of 32 elements with a
// 4-bit scale s each; the magnitudes of 4 elements are a point of a grid of 512, the signs apart:
//   x = (d * (2 s + 1)) * g,   |g| one of 1, 3, 5 .. 15
//
//   byte   0 1 | 2 .... 65 | 66 .. 73 | 74 .... 105 | 106 ... 109
//          d   | qs[64]    | qh[8]    | signs[32]   | scales[4]
//
// Point j has its low 8 bits in qs[j] and its upper bit in bit j % 8 of qh[j / 8]. Bit i of
// signs[j] is set where element 8 j + i is negative. scales[j] holds s of sub-block 2 j low, 2 j +
// 1 high.
//
// Worked block: d = 0.5 (00 38), signs[0] = 01, scales[0] = 01, rest 0: s = 1, point 0 =
// (1, 1, 1, 1): x0 = 0.5 * 3 * -1 = -1.5 and x1 .. x3 = 1.5.
//
// Error, by the plain encoding (a the block's largest |x|): the scales just reach the largest
// magnitude, s' = d * (2 s + 1) <= a/15 * (1 + 2^-10). Whatever four neighbouring levels are wanted
// at each of the 4 coordinates, the grid has such a point (a test looks). The four next to a
// magnitude are at most 7 s' away (7 from 0, 6 from 15): |error| <= 7/15 * (1 + 2^-10) a = 0.468 a.
#include <algorithm>

#include "weights/formats/grids.hpp"
#include "weights/formats/signed_grid.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockIQ3_S;

constexpr float kBound = 0.47f;
constexpr std::size_t kGroup = 32;  ///< elements that share a scale
constexpr auto decode = decode_unpacked<Block, kGroup, false>;

SignedGrid format() noexcept {
  static const GridSearch search(kIQ3_SGrid, 4, kIQ3_SLevels);
  return {search, kGroup, false, 1.0};
}

void pack(const SignedGridBlock& from, Block& block) noexcept {
  block = {};
  block.d = from.d;
  for (std::size_t j = 0; j < 64; ++j) {
    block.qs[j] = static_cast<std::uint8_t>(from.points[j] & 255);
    block.qh[j / 8] |= static_cast<std::uint8_t>(from.points[j] >> 8 << (j % 8));
  }
  std::copy(from.signs.begin(), from.signs.end(), block.signs);
  for (std::size_t j = 0; j < 8; ++j) {
    block.scales[j / 2] |= static_cast<std::uint8_t>(from.scales[j] << (j % 2 * 4));
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(search_signed_grid(format(), in, weigh.error), block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound))
    pack(plain_signed_grid(format(), in), block);
}

}  // namespace

void unpack(const BlockIQ3_S& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d);
  for (std::size_t j = 0; j < 8; ++j) {
    out.scales[j] = static_cast<float>(2 * (block.scales[j / 2] >> (j % 2 * 4) & 15) + 1);
  }
  for (std::size_t j = 0; j < 64; ++j) {
    const int point = block.qs[j] | (block.qh[j / 8] >> (j % 8) & 1) << 8;
    put_signed_point(kIQ3_SGrid[static_cast<std::size_t>(point)], kIQ3_SLevels,
                     block.signs[j / 2] >> (j % 2 * 4), &out.codes[j * 4]);
  }
}

constinit const FormatTraits kIQ3_STraits = {.format = Format::kIQ3_S,
                                             .name = "IQ3_S",
                                             .block_elements = Block::kElements,
                                             .block_bytes = sizeof(Block),
                                             .relative_error_bound = kBound,
                                             .absolute_error_floor = 217 * kSmallestScale,
                                             .largest_magnitude = kLargestScale * 15,
                                             .dequantize = decode_row<Block, decode>,
                                             .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
