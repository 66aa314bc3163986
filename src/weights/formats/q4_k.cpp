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
// included below 0.0684 a. The encoder searches for a smaller squared error first and falls back on
// the plain encoding if any element breaks the bound.
#include <algorithm>
#include <array>

#include "weights/formats/blocks.hpp"
#include "weights/formats/codec.hpp"
#include "weights/formats/fit.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ4_K;

constexpr float kBound = 0.0684f;
constexpr std::size_t kSubBlocks = 8, kSize = 32;
constexpr int kMaxPart = 63;  // largest 6-bit scale or minimum
constexpr int kMaxCode = 15;

using Pairs = std::array<ScaleMin, kSubBlocks>;

void decode(const Block& block, Elements<Block> out) noexcept {
  const float d = base::f16_to_f32(block.d);
  const float dmin = base::f16_to_f32(block.dmin);
  for (std::size_t j = 0; j < kSubBlocks; ++j) {
    const ScaleMin pair = unpack_scale_min(block.scales, j);
    const float scale = d * static_cast<float>(pair.scale);
    const float min = dmin * static_cast<float>(pair.min);
    const std::uint8_t* qs = block.qs + j / 2 * kSize;
    const int shift = j % 2 == 0 ? 0 : 4;
    for (std::size_t i = 0; i < kSize; ++i) {
      out[j * kSize + i] = scale * static_cast<float>(qs[i] >> shift & 15) - min;
    }
  }
}

void pack_scales(const Pairs& pairs, Block& block) noexcept {
  for (std::size_t j = 0; j < 4; ++j) {
    const ScaleMin low = pairs[j], high = pairs[j + 4];
    block.scales[j] = static_cast<std::uint8_t>(low.scale | high.scale >> 4 << 6);
    block.scales[j + 4] = static_cast<std::uint8_t>(low.min | high.min >> 4 << 6);
    block.scales[j + 8] = static_cast<std::uint8_t>((high.scale & 15) | (high.min & 15) << 4);
  }
}

/// Writes the codes for scales that are decided. block.d and block.dmin are set already.
void encode_codes(ConstElements<Block> in, const Pairs& pairs, Block& block) noexcept {
  const double d = base::f16_to_f32(block.d), dmin = base::f16_to_f32(block.dmin);
  pack_scales(pairs, block);
  std::fill(std::begin(block.qs), std::end(block.qs), std::uint8_t{0});
  for (std::size_t j = 0; j < kSubBlocks; ++j) {
    const double scale = d * pairs[j].scale, min = dmin * pairs[j].min;
    const double inverse = scale > 0 ? 1 / scale : 0;
    for (std::size_t i = 0; i < kSize; ++i) {
      const int q = int_code(in[j * kSize + i] + min, inverse, 0, kMaxCode);
      block.qs[j / 2 * kSize + i] |= static_cast<std::uint8_t>(q << (j % 2 * 4));
    }
  }
}

std::uint8_t part_at_least(double x, double unit) noexcept {
  if (!(unit > 0)) return 0;
  return static_cast<std::uint8_t>(std::clamp(std::ceil(x / unit), 0.0, double{kMaxPart}));
}

/// The encoding that the error bound is argued for.
void encode_plain(ConstElements<Block> in, Block& block) noexcept {
  std::array<double, kSubBlocks> lows, steps;
  double deepest = 0, widest = 0;
  for (std::size_t j = 0; j < kSubBlocks; ++j) {
    const auto x = in.subspan(j * kSize, kSize);
    lows[j] = std::min(0.0, static_cast<double>(*std::min_element(x.begin(), x.end())));
    deepest = std::max(deepest, -lows[j]);
  }
  Pairs pairs{};
  block.dmin = f16_at_least(deepest / kMaxPart);
  const double dmin = base::f16_to_f32(block.dmin);
  for (std::size_t j = 0; j < kSubBlocks; ++j) {
    const auto x = in.subspan(j * kSize, kSize);
    pairs[j].min = part_at_least(-lows[j], dmin);
    steps[j] = (*std::max_element(x.begin(), x.end()) + dmin * pairs[j].min) / kMaxCode;
    widest = std::max(widest, steps[j]);
  }
  block.d = f16_at_least(widest / kMaxPart);
  const double d = base::f16_to_f32(block.d);
  for (std::size_t j = 0; j < kSubBlocks; ++j) pairs[j].scale = part_at_least(steps[j], d);
  encode_codes(in, pairs, block);
}

/// The pair within one of the rounded fit that has the smallest squared error.
ScaleMin best_pair(std::span<const float> x, const Affine& fit, double d, double dmin) noexcept {
  const int scale = int_code(fit.scale, d > 0 ? 1 / d : 0, 0, kMaxPart);
  const int min = int_code(fit.min, dmin > 0 ? 1 / dmin : 0, 0, kMaxPart);
  ScaleMin best{};
  double best_error = std::numeric_limits<double>::infinity();
  for (int s = std::max(0, scale - 1); s <= std::min(kMaxPart, scale + 1); ++s) {
    for (int m = std::max(0, min - 1); m <= std::min(kMaxPart, min + 1); ++m) {
      const double error = squared_error(x, d * s, dmin * m, 0, kMaxCode);
      if (error >= best_error) continue;
      best = {static_cast<std::uint8_t>(s), static_cast<std::uint8_t>(m)};
      best_error = error;
    }
  }
  return best;
}

void encode_searched(ConstElements<Block> in, Block& block) noexcept {
  std::array<Affine, kSubBlocks> fits;
  double scale = 0, min = 0;
  for (std::size_t j = 0; j < kSubBlocks; ++j) {
    fits[j] = fit_affine(in.subspan(j * kSize, kSize), kMaxCode);
    scale = std::max(scale, fits[j].scale);
    min = std::max(min, fits[j].min);
  }
  block.d = f16_nearest(scale / kMaxPart);
  block.dmin = f16_nearest(min / kMaxPart);
  const double d = base::f16_to_f32(block.d), dmin = base::f16_to_f32(block.dmin);
  Pairs pairs;
  for (std::size_t j = 0; j < kSubBlocks; ++j) {
    pairs[j] = best_pair(in.subspan(j * kSize, kSize), fits[j], d, dmin);
  }
  encode_codes(in, pairs, block);
}

void encode(ConstElements<Block> in, Block& block) noexcept {
  encode_searched(in, block);
  std::array<float, Block::kElements> decoded;
  decode(block, decoded);
  if (!within(in, decoded, kBound * largest_magnitude_of(in))) encode_plain(in, block);
}

}  // namespace

constinit const FormatTraits kQ4_KTraits = {.format = Format::kQ4_K,
                                            .name = "Q4_K",
                                            .block_elements = Block::kElements,
                                            .block_bytes = sizeof(Block),
                                            .relative_error_bound = kBound,
                                            .absolute_error_floor = kSmallestScale,
                                            .largest_magnitude = kLargestScale * kMaxPart,
                                            .dequantize = decode_row<Block, decode>,
                                            .quantize = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
