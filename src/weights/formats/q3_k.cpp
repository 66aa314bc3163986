// SPDX-License-Identifier: Apache-2.0
// Q3_K: 256 elements in 110 bytes, 3.4375 bits an element. Sixteen sub-blocks of 16 elements, each
// with a signed 6-bit scale s[j], which an f16 scale multiplies:
//   x = (d * s[j]) * (q - 4),   q in 0..7
//
//   byte   0 ..... 31 | 32 .... 95 | 96 ..... 107 | 108 109
//          hmask      | qs         | scales[12]   | d
//
// The low 2 bits of the codes lie in qs as q2_k.cpp draws them. Bit e / 32 of hmask[e % 32] is bit
// 2 of element e's code. The scales are stored as s[j] + 32, in 4 and 2 bits:
//
//   scales   byte   7 6 5 4    3 2 1 0          byte    7 6      5 4     3 2     1 0
//            0..7   s[8+i]     s[i]             8..11   s[12+i]  s[8+i]  s[4+i]  s[i]
//                   low 4 bits, i = byte                upper 2 bits, i = byte - 8
//
// Worked block: d = 0.5 (00 38), scales = 03 .. | 02 ..: s[0] = 3 + 32 - 32 = 3. With qs[0] = 0x01
// and hmask[0] = 0x01, x0 = (0.5 * 3) * (1 + 4 - 4) = 1.5; with hmask[0] = 0 it is -4.5.
//
// Error, by the plain encoding (a the block's largest |x|): d = a/(3 * 31) rounded up, and s[j] the
// sub-block's largest magnitude over 3 d rounded up, so nothing clips and a step is at most
// a/3 + d: |error| <= (1/3 + 1/93)/2 * (1 + 2^-10) a = 0.1723 a. The search, which also uses the
// code -4 and clips outliers, may use up to the bound below.
#include "weights/formats/scaled_fit.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ3_K;
using Fit = ScaledFit<UniformCodes<4>, 16, 31>;

constexpr float kBound = 0.26f;
constexpr auto decode = decode_unpacked<Block, 16, false>;

void pack(const Fit& fit, ConstElements<Block> in, Block& block) noexcept {
  block = {};
  block.d = fit.d;
  for (std::size_t j = 0; j < 16; ++j) {
    const int s = fit.scales[j] + 32;
    block.scales[j % 8] |= static_cast<std::uint8_t>((s & 15) << (j / 8 * 4));
    block.scales[8 + j % 4] |= static_cast<std::uint8_t>(s >> 4 << (j / 4 * 2));
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto q = static_cast<unsigned>(fit.value(in[i], i / 16) + 4);
    put_strided_pair(block.qs, i, q & 3u);
    block.hmask[i % 32] |= static_cast<std::uint8_t>(q >> 2 << (i / 32));
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(Fit::searched(in, weigh.error, kBound * largest_magnitude_of(in)), in, block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound)) pack(Fit::plain(in), in, block);
}

}  // namespace

void unpack(const BlockQ3_K& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d);
  for (std::size_t j = 0; j < 16; ++j) {
    const int low = block.scales[j % 8] >> (j / 8 * 4) & 15;
    const int high = block.scales[8 + j % 4] >> (j / 4 * 2) & 3;
    out.scales[j] = static_cast<float>((low | high << 4) - 32);
  }
  for (std::size_t i = 0; i < Block::kElements; ++i) {
    const int high = block.hmask[i % 32] >> (i / 32) & 1;
    out.codes[i] = static_cast<std::int8_t>((strided_pair(block.qs, i) | high << 2) - 4);
  }
}

constinit const FormatTraits kQ3_KTraits = {.format = Format::kQ3_K,
                                            .name = "Q3_K",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = kBound,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale * 31 * 3,
                                            .dequantize = decode_row<Block, decode>,
                                            .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
