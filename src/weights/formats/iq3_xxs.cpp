// SPDX-License-Identifier: Apache-2.0
// IQ3_XXS: 256 elements in 98 bytes, 3.0625 bits an element. Eight sub-blocks of 32 elements with a
// 4-bit scale s each; the magnitudes of 4 elements are a point of a grid of 256:
//   x = (d/4 * (2 s + 1)) * g,   |g| one of 4, 12, 20, 28, 36, 44, 52, 62
//
//   byte   0 1 | 2 ..... 65 | 66 ......... 97
//          d   | qs[64]     | sign_scale[8]      u32 each, as iq2_xxs.cpp draws it
//
// Point j is qs[j]; the signs of points 2 j and 2 j + 1 are eight, of which seven are stored and
// the eighth makes the number of negative elements even.
//
// Worked block: d = 1 (00 3c), sign_scale[0] = 01 00 00 10, rest 0: s = 1, point 0 = (4, 4, 4, 4):
// x0 = 1/4 * 3 * -4 = -3, x1 .. x6 = 3, x7 = -3.
//
// Error: as in IQ2_XXS with the least magnitude 4 of 62: at most a + 4/62 * (1 + 2^-10) a = 1.065
// a, the sign that had to change included (a the block's largest |x|).
#include "weights/formats/grids.hpp"
#include "weights/formats/signed_grid.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockIQ3_XXS;

constexpr float kBound = 1.07f;
constexpr std::size_t kGroup = 32;  ///< elements that share a scale
constexpr auto decode = decode_unpacked<Block, kGroup, false>;

SignedGrid format() noexcept {
  static const GridSearch search(kIQ3_XXSGrid, 4, kIQ3_XXSLevels);
  return {search, kGroup, true, 0.25};
}

void pack(const SignedGridBlock& from, Block& block) noexcept {
  block = {};
  block.d = from.d;
  for (std::size_t j = 0; j < 64; ++j) block.qs[j] = static_cast<std::uint8_t>(from.points[j]);
  for (std::size_t j = 0; j < 8; ++j) {
    std::uint32_t word = std::uint32_t{from.scales[j]} << 28;
    for (std::size_t k = 0; k < 4; ++k) word |= (from.signs[j * 4 + k] & 127u) << (7 * k);
    block.sign_scale[j] = word;
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(search_signed_grid(format(), in, weigh.error), block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound))
    pack(plain_signed_grid(format(), in), block);
}

}  // namespace

void unpack(const BlockIQ3_XXS& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d) * 0.25f;
  for (std::size_t j = 0; j < 8; ++j) {
    const std::uint32_t word = block.sign_scale[j];
    out.scales[j] = static_cast<float>(2 * (word >> 28) + 1);
    for (std::size_t k = 0; k < 4; ++k) {
      const std::uint8_t signs = even_signs(word >> (7 * k) & 127u);
      const std::size_t at = j * 8 + k * 2;
      put_signed_point(kIQ3_XXSGrid[block.qs[at]], kIQ3_XXSLevels, signs, &out.codes[at * 4]);
      put_signed_point(kIQ3_XXSGrid[block.qs[at + 1]], kIQ3_XXSLevels, signs >> 4,
                       &out.codes[at * 4 + 4]);
    }
  }
}

constinit const FormatTraits kIQ3_XXSTraits = {.format = Format::kIQ3_XXS,
                                               .name = "IQ3_XXS",
                                               .block_elements = Block::kElements,
                                               .block_bytes = sizeof(Block),
                                               .relative_error_bound = kBound,
                                               .absolute_error_floor = 31 * kSmallestScale,
                                               .largest_magnitude = kLargestScale * 62,
                                               .dequantize = decode_row<Block, decode>,
                                               .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
