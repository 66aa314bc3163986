// SPDX-License-Identifier: Apache-2.0
// IQ2_XXS: 256 elements in 66 bytes, 2.0625 bits an element. Eight sub-blocks of 32 elements with a
// 4-bit scale s each; the magnitudes of 8 elements are a point of a grid of 256:
//   x = (d/8 * (2 s + 1)) * g,   |g| one of 8, 25, 43
//
//   byte   0 1 | 2 .. 5   | 6 .. 9     | 10 .. 13 | 14 .. 17   | ...  65
//          d   | 4 points | sign_scale | 4 points | sign_scale |           (8 bytes a sub-block)
//
//   sign_scale   bits 31..28   27..21         20..14         13..7          6..0
//                s             signs, 4th     signs, 3rd     signs, 2nd     signs, 1st point
//
// Seven of a point's eight signs are stored, bit i for element i, set where it is negative; the
// eighth makes the number of negative elements even.
//
// Worked block: d = 1 (00 3c), points 0 ..., sign_scale = 01 00 00 10: s = 1, and point 0 is
// (8, 8, ...), so x0 = 1/8 * 3 * -8 = -3, x1 .. x6 = 3, and x7 = -3 for even signs.
//
// Error, by the plain encoding (a the block's largest |x|): the scales just reach the largest
// magnitude, s' = d/8 * (2 s + 1) <= a/43 * (1 + 2^-10). The grid holds (8, 8, ...), so the best
// point is off by at most a + 8 s' even at the element whose sign had to change: 1.187 a. Nothing
// much below a is possible: of eight elements +-a with an odd number of minus signs one comes out
// with the wrong sign.
#include "weights/formats/grids.hpp"
#include "weights/formats/signed_grid.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockIQ2_XXS;

constexpr float kBound = 1.19f;
constexpr std::size_t kGroup = 32;  ///< elements that share a scale
constexpr auto decode = decode_unpacked<Block, kGroup, false>;

SignedGrid format() noexcept {
  static const GridSearch search(kIQ2_XXSGrid, 8, kIQ2Levels);
  return {search, kGroup, true, 0.125};
}

void pack(const SignedGridBlock& from, Block& block) noexcept {
  block = {};
  block.d = from.d;
  for (std::size_t j = 0; j < 8; ++j) {
    std::uint32_t word = std::uint32_t{from.scales[j]} << 28;
    for (std::size_t k = 0; k < 4; ++k) {
      block.parts[j].index[k] = static_cast<std::uint8_t>(from.points[j * 4 + k]);
      word |= (from.signs[j * 4 + k] & 127u) << (7 * k);
    }
    block.parts[j].sign_scale = word;
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(search_signed_grid(format(), in, weigh.error), block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound))
    pack(plain_signed_grid(format(), in), block);
}

}  // namespace

void unpack(const BlockIQ2_XXS& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d) * 0.125f;
  for (std::size_t j = 0; j < 8; ++j) {
    const Block::Part& part = block.parts[j];
    out.scales[j] = static_cast<float>(2 * (part.sign_scale >> 28) + 1);
    for (std::size_t k = 0; k < 4; ++k) {
      put_signed_point(kIQ2_XXSGrid[part.index[k]], kIQ2Levels,
                       even_signs(part.sign_scale >> (7 * k) & 127u), &out.codes[j * 32 + k * 8]);
    }
  }
}

constinit const FormatTraits kIQ2_XXSTraits = {.format = Format::kIQ2_XXS,
                                               .name = "IQ2_XXS",
                                               .block_elements = Block::kElements,
                                               .block_bytes = sizeof(Block),
                                               .relative_error_bound = kBound,
                                               .absolute_error_floor = 31 * kSmallestScale,
                                               .largest_magnitude = kLargestScale * 43,
                                               .dequantize = decode_row<Block, decode>,
                                               .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
