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
// |error|
// <= half a step <= a/62 * (1 + 1/127) and below 0.0163 a with f16 rounding. The encoder searches
// for a smaller squared error first and falls back on the plain encoding if any element breaks the
// bound.
#include <algorithm>
#include <array>

#include "weights/formats/blocks.hpp"
#include "weights/formats/codec.hpp"
#include "weights/formats/fit.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ6_K;

constexpr float kBound = 0.0163f;
constexpr std::size_t kSubBlocks = 16, kSize = 16;
constexpr int kMaxScale = 127;

using Scales = std::array<std::int8_t, kSubBlocks>;

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

/// Writes the codes for scales that are decided. block.d is set already.
void encode_codes(ConstElements<Block> in, const Scales& scales, Block& block) noexcept {
  const double d = base::f16_to_f32(block.d);
  std::copy(scales.begin(), scales.end(), block.scales);
  std::fill(std::begin(block.ql), std::end(block.ql), std::uint8_t{0});
  std::fill(std::begin(block.qh), std::end(block.qh), std::uint8_t{0});
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double scale = d * scales[i / kSize];
    const int q = int_code(in[i], scale != 0 ? 1 / scale : 0, -32, 31) + 32;
    const Place p = place(i);
    block.ql[p.ql] |= static_cast<std::uint8_t>((q & 15) << p.ql_shift);
    block.qh[p.qh] |= static_cast<std::uint8_t>(q >> 4 << p.qh_shift);
  }
}

/// The encoding that the error bound is argued for.
void encode_plain(ConstElements<Block> in, Block& block) noexcept {
  block.d = f16_at_least(largest_magnitude_of(in) / 31 / kMaxScale);
  const double d = base::f16_to_f32(block.d);
  Scales scales{};
  for (std::size_t j = 0; j < kSubBlocks && d > 0; ++j) {
    const double step = largest_magnitude_of(in.subspan(j * kSize, kSize)) / 31;
    scales[j] = static_cast<std::int8_t>(std::min(std::ceil(step / d), double{kMaxScale}));
  }
  encode_codes(in, scales, block);
}

void encode_searched(ConstElements<Block> in, Block& block) noexcept {
  std::array<double, kSubBlocks> fits;
  double largest = 0;
  for (std::size_t j = 0; j < kSubBlocks; ++j) {
    fits[j] = fit_symmetric(in.subspan(j * kSize, kSize), 32);
    largest = std::max(largest, std::fabs(fits[j]));
  }
  block.d = f16_nearest(largest / kMaxScale);
  const double d = base::f16_to_f32(block.d);
  Scales scales{};
  for (std::size_t j = 0; j < kSubBlocks; ++j) {
    const auto x = in.subspan(j * kSize, kSize);
    const int nearest = int_code(fits[j], d > 0 ? 1 / d : 0, -kMaxScale, kMaxScale);
    double best_error = std::numeric_limits<double>::infinity();
    for (int s = std::max(-128, nearest - 1); s <= std::min(kMaxScale, nearest + 1); ++s) {
      const double error = squared_error(x, d * s, 0, -32, 31);
      if (error < best_error) scales[j] = static_cast<std::int8_t>(s), best_error = error;
    }
  }
  encode_codes(in, scales, block);
}

void encode(ConstElements<Block> in, Block& block) noexcept {
  encode_searched(in, block);
  std::array<float, Block::kElements> decoded;
  decode(block, decoded);
  if (!within(in, decoded, kBound * largest_magnitude_of(in))) encode_plain(in, block);
}

}  // namespace

constinit const FormatTraits kQ6_KTraits = {.format = Format::kQ6_K,
                                            .name = "Q6_K",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = kBound,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale * kMaxScale * 31,
                                            .dequantize = decode_row<Block, decode>,
                                            .quantize = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
