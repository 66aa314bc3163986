// SPDX-License-Identifier: Apache-2.0
// TQ1_0: 256 elements in 54 bytes, 1.6875 bits an element. Ternary weights: x = d * (t - 1), t in
// 0..2, five base-3 digits a byte.
//
//   byte   0 ......... 31 | 32 ........ 47 | 48 ...... 51 | 52 53
//          5 x 32 digits  | 5 x 16 digits  | 4 x 4 digits | d
//
// Digit n of byte i is element 32 n + i, 160 + 16 n + i, 240 + 4 n + i of the three parts. Digits
// are the first places of a fraction: byte = ceil(256 * 0.t0 t1 t2 t3 t4 in base 3), so that digit
// n is (byte * 3^n mod 256) * 3 / 256, rounded down. Bytes above 255 * 242/243 do not occur.
//
// Worked block: byte 0 = 0xab = ceil(256 * 162/243): digits 2 0 0 0 0. With d = 0.5 (00 38),
// x0 = 0.5 and x32 = x64 = x96 = x128 = -0.5.
//
// Error: d is the f16 nearest to the scale of least squared error, which is at most a (the block's
// largest |x|) and at least half the smallest magnitude that it rounds away from zero, so an
// element is off by at most max(d/2, a - d) <= a. A tighter bound would need d near a, which ruins
// weights that are not ternary; weights that are ternary come out exact to f16.
#include "weights/formats/ternary.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockTQ1_0;

constexpr std::uint8_t kPowers[] = {1, 3, 9, 27, 81};

struct Place {
  std::size_t byte;   ///< of qs and qh, which follow one another
  std::size_t digit;  ///< 0 is the first of the fraction
};

constexpr Place place(std::size_t i) noexcept {
  if (i < 160) return {i % 32, i / 32};
  if (i < 240) return {32 + (i - 160) % 16, (i - 160) / 16};
  return {48 + (i - 240) % 4, (i - 240) / 4};
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  block.d = f16_nearest(fit_ternary(in, weigh.error));
  const double d = base::f16_to_f32(block.d), inverse = d > 0 ? 1 / d : 0;
  std::array<unsigned, 52> numbers{};  // the digits as whole numbers below 243
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Place p = place(i);
    numbers[p.byte] +=
        kPowers[4 - p.digit] * static_cast<unsigned>(int_code(in[i], inverse, -1, 1) + 1);
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>((numbers[i] * 256 + 242) / 243);
    (i < 48 ? block.qs[i] : block.qh[i - 48]) = byte;
  }
}

}  // namespace

void unpack(const BlockTQ1_0& block, Unpacked& out) noexcept {
  out.d = base::f16_to_f32(block.d);
  out.scales.fill(1.f);
  for (std::size_t i = 0; i < Block::kElements; ++i) {
    const Place p = place(i);
    const std::uint8_t byte = p.byte < 48 ? block.qs[p.byte] : block.qh[p.byte - 48];
    const auto rest = static_cast<std::uint8_t>(byte * kPowers[p.digit]);
    out.codes[i] = static_cast<std::int8_t>((rest * 3 >> 8) - 1);
  }
}

constinit const FormatTraits kTQ1_0Traits = {
    .format = Format::kTQ1_0,
    .name = "TQ1_0",
    .block_elements = Block::kElements,
    .block_bytes = sizeof(Block),
    .relative_error_bound = 1.f,
    .absolute_error_floor = kSmallestScale,
    .largest_magnitude = kLargestScale,
    .dequantize = decode_row<Block, (decode_unpacked<Block, 32, false>)>,
    .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
