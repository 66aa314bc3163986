// SPDX-License-Identifier: Apache-2.0
// Q4_K: 256 elements in 144 bytes, 4.5 bits an element. Eight sub-blocks of 32 elements, each with
// a 6-bit scale s[j] and a 6-bit minimum m[j], which two f16 scales multiply:
//   x = (d * s[j]) * q - (dmin * m[j]),   q in 0..15
//
//   byte   0 1 | 2 3  | 4 .. 15     | 16 ........ 47 | 48 ........ 79 | 80 ....... 111 | 112 .. 143
//          d   | dmin | scales[12]  | sub-blocks 0,1 | sub-blocks 2,3 | sub-blocks 4,5 | 6,7
//
//   Group g of 32 bytes: byte i holds element i of sub-block 2g (low nibble) and of 2g + 1 (high).
//
//   scales   byte      7 6     5 4 3 2 1 0          byte        7 6 5 4    3 2 1 0
//            0..3      s[4+j]  s[j], j = byte        8..11       m[4+j]     s[4+j]  j = byte - 8
//            4..7      m[4+j]  m[j], j = byte - 4                low 4 bits low 4 bits
//                      upper 2 bits
//
// Worked block: d = 0.5 (00 38), dmin = 0.25 (00 34), scales = 03 00 00 00 | 02 00 00 00 | 0 ...:
// s[0] = 3, m[0] = 2, all others 0. With qs[0] = 0x05, x0 = (0.5 * 3) * 5 - (0.25 * 2) = 7.
//
// Error, by the plain encoding (a the block's largest |x|): dmin = a/63 rounded up, m[j] rounded
// up, so that the minimum is below every element by less than dmin; a range of at most 2a + dmin is
// cut into 15 steps, and the step is rounded up to a multiple of d = (largest step)/63. Nothing
// clips, so |error| <= half a step <= (2 + 1/63)/15 * (1 + 1/63) / 2 * a = 0.0683 a, f16 rounding
// included below 0.0684 a. The encoder searches for a smaller squared error first, which may cost
// an element up to the bound below; it falls back on the plain encoding where one would break that.
#include "weights/formats/affine_fit.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ4_K;
using Fit = AffineFit<8, 63, 15>;

constexpr float kBound = 0.08f;
constexpr std::size_t kSize = 32;

void decode(const Block& block, Elements<Block> out) noexcept {
  const float d = base::f16_to_f32(block.d);
  const float dmin = base::f16_to_f32(block.dmin);
  for (std::size_t j = 0; j < 8; ++j) {
    const ScaleMin pair = unpack_scale_min(block.scales, j);
    const float scale = d * static_cast<float>(pair.scale);
    const float min = dmin * static_cast<float>(pair.min);
    for (std::size_t i = j * kSize; i < (j + 1) * kSize; ++i) {
      out[i] = scale * static_cast<float>(paired_nibble(block.qs, i)) - min;
    }
  }
}

void pack(const Fit& fit, ConstElements<Block> in, Block& block) noexcept {
  block = {};
  block.d = fit.d;
  block.dmin = fit.dmin;
  pack_scale_mins(fit.pairs, block.scales);
  for (std::size_t i = 0; i < in.size(); ++i) {
    put_paired_nibble(block.qs, i, static_cast<unsigned>(fit.code(in[i], i / kSize)));
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(Fit::searched(in, weigh.error, kBound * largest_magnitude_of(in)), in, block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound)) pack(Fit::plain(in), in, block);
}

}  // namespace

constinit const FormatTraits kQ4_KTraits = {.format = Format::kQ4_K,
                                            .name = "Q4_K",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = kBound,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale * 63,
                                            .dequantize = decode_row<Block, decode>,
                                            .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
