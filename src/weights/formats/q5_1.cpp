// SPDX-License-Identifier: Apache-2.0
// Q5_1: 32 elements in 24 bytes, 6 bits an element. A scale and an offset: x = d * q + m, q in
// 0..31.
//
//   byte   0 1 | 2 3 | 4 5 6 7 | 8        9       ...  23
//          d   | m   | qh      | q16 q0   q17 q1  ...  q31 q15      (high nibble, low nibble)
//
// The nibbles are the low 4 bits of the codes; bit i of qh, read as a little-endian u32, is bit 4
// of q[i].
//
// Worked block: 00 38 | 00 bc | 01 00 00 00 | 73 ... has d = 0.5, m = -1; q0 = 3 + 16 gives
// x0 = 8.5, and q16 = 7 gives x16 = 2.5.
//
// Error: as in Q4_1 with 31 steps: |error| <= (2 + 2^-10)/62 * (1 + 2^-10) a = 0.0324 a by the
// plain encoding; the search may use up to the bound below.
#include "weights/formats/offset_fit.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ5_1;
using Fit = OffsetFit<31>;

constexpr float kBound = 0.042f;
constexpr auto decode = decode_unpacked<Block, 32, true>;

void pack(const Fit& fit, ConstElements<Block> in, Block& block) noexcept {
  block = {};
  block.d = fit.d;
  block.m = fit.m;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const unsigned q = fit.code(in[i]);
    put_split_nibble(block.qs, i, q & 15u);
    block.qh[i / 8] |= static_cast<std::uint8_t>(q >> 4 << (i % 8));
  }
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  pack(Fit::searched(in, weigh.error, kBound * largest_magnitude_of(in)), in, block);
  if (!keeps_bound<Block, decode>(in, weigh, block, kBound)) pack(Fit::plain(in), in, block);
}

}  // namespace

void unpack(const BlockQ5_1& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d);
  out.dmin = -base::f16_to_f32(block.m);
  out.scales[0] = out.minimums[0] = 1.f;
  for (std::size_t i = 0; i < Block::kElements; ++i) {
    const int high = block.qh[i / 8] >> (i % 8) & 1;
    out.codes[i] = static_cast<std::int8_t>(split_nibble(block.qs, i) | high << 4);
  }
}

constinit const FormatTraits kQ5_1Traits = {.format = Format::kQ5_1,
                                            .name = "Q5_1",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = kBound,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale,
                                            .dequantize = decode_row<Block, decode>,
                                            .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
