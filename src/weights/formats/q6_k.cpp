// SPDX-License-Identifier: Apache-2.0
// Q6_K: 256 elements in 210 bytes, 6.5625 bits an element. Sixteen sub-blocks of 16 elements, each
// with a signed 8-bit scale, which one f16 multiplies:
//   x = (d * s[j]) * (q - 32),   q in 0..63
//
//   byte   0 ...... 127 | 128 ..... 191 | 192 ... 207 | 208 209
//          ql           | qh            | s[16]       | d
//
//   The block has two halves of 128 elements (ql 64 bytes, qh 32 bytes, 8 scales each). In a half,
//   for l = 0..31, four elements share the byte qh[l]:
//     element l        low bits ql[l]      & 15   high bits qh[l] bits 0-1
//     element l + 32            ql[l + 32] & 15                  bits 2-3
//     element l + 64            ql[l]      >> 4                  bits 4-5
//     element l + 96            ql[l + 32] >> 4                  bits 6-7
//
// Worked block: d = 0.5 (00 38), s[0] = 2, ql[0] = 0x01, qh[0] = 0x03, rest 0: q0 = 1 + 3 * 16 = 49
// and x0 = (0.5 * 2) * (49 - 32) = 17.
//
// Error, by the plain encoding (a the block's largest |x|): each sub-block's step is its largest
// |x| / 31, rounded up to a multiple of d = (largest step)/127 rounded up. Nothing clips, so
// |error| <= half a step <= a/62 * (1 + 1/127), below 0.0163 a with f16 rounding. The encoder
// searches for a smaller squared error first, which may cost an element up to the bound below; it
// falls back on the plain encoding where one would break that.
#include "weights/formats/blocks.hpp"
#include "weights/formats/codec.hpp"
#include "weights/formats/scaled_fit.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ6_K;
using Fit = ScaledFit<UniformCodes<32>, 16, 127>;

constexpr float kBound = 0.0195f;
constexpr std::size_t kSize = 16;

/// Where the code of one element lies: its byte in ql and the shift there, its byte in qh and the
/// shift there.
struct Place {
  std::size_t ql, qh;
  int ql_shift, qh_shift;
};

constexpr Place place(std::size_t element) noexcept {
  const std::size_t half = element / 128, quarter = element % 128 / 32, l = element % 32;
  return {half * 64 + quarter % 2 * 32 + l, half * 32 + l, quarter < 2 ? 0 : 4,
          static_cast<int>(2 * quarter)};
}

void decode(const Block& block, Elements<Block> out) noexcept {
  const float d = base::f16_to_f32(block.d);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Place p = place(i);
    const int low = block.ql[p.ql] >> p.ql_shift & 15;
    const int high = block.qh[p.qh] >> p.qh_shift & 3;
    const float scale = d * static_cast<float>(block.scales[i / kSize]);
    out[i] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

void pack(const Fit& fit, ConstElements<Block> in, Block& block) noexcept {
  block = {};
  block.d = fit.d;
  std::copy(fit.scales.begin(), fit.scales.end(), block.scales);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const int q = fit.value(in[i], i / kSize) + 32;
    const Place p = place(i);
    block.ql[p.ql] |= static_cast<std::uint8_t>((q & 15) << p.ql_shift);
    block.qh[p.qh] |= static_cast<std::uint8_t>(q >> 4 << p.qh_shift);
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(Fit::searched(in, weigh.error, kBound * largest_magnitude_of(in)), in, block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound)) pack(Fit::plain(in), in, block);
}

}  // namespace

constinit const FormatTraits kQ6_KTraits = {.format = Format::kQ6_K,
                                            .name = "Q6_K",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = kBound,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale * 127 * 31,
                                            .dequantize = decode_row<Block, decode>,
                                            .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
