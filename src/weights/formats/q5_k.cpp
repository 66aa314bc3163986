// SPDX-License-Identifier: Apache-2.0
// Q5_K: 256 elements in 176 bytes, 5.5 bits an element: Q4_K with a fifth bit for each code.
//   x = (d * s[j]) * q - (dmin * m[j]),   q in 0..31
//
//   byte   0 1 | 2 3  | 4 .. 15    | 16 .. 47 | 48 ........ 79 | 80 ...... 111 | 112 .. | 144 ..
//          d   | dmin | scales[12] | qh       | sub-blocks 0,1 | 2,3           | 4,5    | 6,7
//
// Scales and nibbles lie as q4_k.cpp draws them; bit j of qh[i] is bit 4 of element i of
// sub-block j.
//
// Worked block: d = 0.5, dmin = 0.25, s[0] = 3, m[0] = 2 as in q4_k.cpp. With qs[0] = 0x05 and
// qh[0] = 0x01, x0 = (0.5 * 3) * 21 - (0.25 * 2) = 31.
//
// Error, by the plain encoding (a the block's largest |x|), as in Q4_K with 31 steps:
// (2 + 1/63)/31 * (1 + 1/63) / 2 * a = 0.0331 a. The search may use up to the bound below.
#include "weights/formats/affine_fit.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ5_K;
using Fit = AffineFit<8, 63, 31>;

constexpr float kBound = 0.04f;
constexpr auto decode = decode_unpacked<Block, 32, true>;

void pack(const Fit& fit, ConstElements<Block> in, Block& block) noexcept {
  block = {};
  block.d = fit.d;
  block.dmin = fit.dmin;
  pack_scale_mins(fit.pairs, block.scales);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto q = static_cast<unsigned>(fit.code(in[i], i / 32));
    put_paired_nibble(block.qs, i, q & 15u);
    block.qh[i % 32] |= static_cast<std::uint8_t>(q >> 4 << (i / 32));
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(Fit::searched(in, weigh.error, kBound * largest_magnitude_of(in)), in, block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound)) pack(Fit::plain(in), in, block);
}

}  // namespace

void unpack(const BlockQ5_K& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d);
  out.dmin = base::f16_to_f32(block.dmin);
  for (std::size_t j = 0; j < 8; ++j) {
    const ScaleMin pair = unpack_scale_min(block.scales, j);
    out.scales[j] = static_cast<float>(pair.scale);
    out.minimums[j] = static_cast<float>(pair.min);
  }
  for (std::size_t i = 0; i < Block::kElements; ++i) {
    const int high = block.qh[i % 32] >> (i / 32) & 1;
    out.codes[i] = static_cast<std::int8_t>(paired_nibble(block.qs, i) | high << 4);
  }
}

constinit const FormatTraits kQ5_KTraits = {.format = Format::kQ5_K,
                                            .name = "Q5_K",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = kBound,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale * 63,
                                            .dequantize = decode_row<Block, decode>,
                                            .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
