// SPDX-License-Identifier: Apache-2.0
// IQ2_XS: 256 elements in 74 bytes, 2.3125 bits an element. Sixteen sub-blocks of 16 elements with
// a 4-bit scale s each; the magnitudes of 8 elements are a point of a grid of 512:
//   x = (d/8 * (2 s + 1)) * g,   |g| one of 8, 25, 43
//
//   byte   0 1 | 2 ...... 65 | 66 ..... 73
//          d   | qs[32], u16 | scales[8]      s of sub-block 2 j low, 2 j + 1 high in scales[j]
//
//   qs     bits 15..9   8..0
//          signs        point    as in IQ2_XXS: seven stored, the eighth makes them even
//
// Worked block: d = 1 (00 3c), qs[0] = 00 02, scales[0] = 01: signs 1, point 0 = (8, 8, ...), s =
// 1: x0 = 1/8 * 3 * -8 = -3, x1 .. x6 = 3, x7 = -3.
//
// Error: as in IQ2_XXS, at most a + 8/43 * (1 + 2^-10) a, the sign that had to change included.
#include "weights/formats/grids.hpp"
#include "weights/formats/signed_grid.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockIQ2_XS;

constexpr float kBound = 1.19f;
constexpr std::size_t kGroup = 16;  ///< elements that share a scale
constexpr auto decode = decode_unpacked<Block, kGroup, false>;

SignedGrid format() noexcept {
  static const GridSearch search(kIQ2_XSGrid, 8, kIQ2Levels);
  return {search, kGroup, true, 0.125};
}

void pack(const SignedGridBlock& from, Block& block) noexcept {
  block = {};
  block.d = from.d;
  for (std::size_t j = 0; j < 32; ++j) {
    block.qs[j] = static_cast<std::uint16_t>(from.points[j] | (from.signs[j] & 127) << 9);
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

void unpack(const BlockIQ2_XS& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d) * 0.125f;
  for (std::size_t j = 0; j < 16; ++j) {
    out.scales[j] = static_cast<float>(2 * (block.scales[j / 2] >> (j % 2 * 4) & 15) + 1);
  }
  for (std::size_t j = 0; j < 32; ++j) {
    put_signed_point(kIQ2_XSGrid[block.qs[j] & 511u], kIQ2Levels,
                     even_signs(static_cast<unsigned>(block.qs[j] >> 9)), &out.codes[j * 8]);
  }
}

constinit const FormatTraits kIQ2_XSTraits = {.format = Format::kIQ2_XS,
                                              .name = "IQ2_XS",
                                              .block_elements = Block::kElements,
                                              .block_bytes = sizeof(Block),
                                              .relative_error_bound = kBound,
                                              .absolute_error_floor = 31 * kSmallestScale,
                                              .largest_magnitude = kLargestScale * 43,
                                              .dequantize = decode_row<Block, decode>,
                                              .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
