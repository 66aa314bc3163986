// SPDX-License-Identifier: Apache-2.0
// NVFP4: 64 elements in 36 bytes, 4.5 bits an element. Floats of 4 bits (E2M1) in sub-blocks of 16,
// each with a scale of 8 bits (unsigned E4M3): x = scale[j]/2 * value[q], the values doubled.
//
//   byte   0 .. 3   | 4 .... 11   | 12 ... 19   | 20 ... 27   | 28 ... 35
//          scale[j] | sub-block 0 | sub-block 1 | sub-block 2 | sub-block 3
//
//   scale    7   6 5 4 3   2 1 0          (1 + m/8) * 2^(e - 7), or m/512 where e is 0
//            -   e         m              7f is 0
//   byte i of a sub-block: its element i in the low nibble, its element i + 8 in the high one
//
// Values as in mxfp4.cpp. Worked block: scale[0] = 40 is 2; byte 4 = a5: q = 5 gives x0 = 6, and
// q = 10 gives x8 = -2.
//
// Error, by the plain encoding: the smallest scale s with 6 s >= a (a the sub-block's largest |x|)
// clips nothing and is at most 1/8 too large, or 2^-9 where it is subnormal; values are 2 s apart
// at most: |error| <= s <= a/6 * 9/8 + 2^-9. The encoder tries smaller scales too and keeps the
// least squared error within the bound below. Files for which 2^-9 is coarse carry a tensor scale
// beside.
#include <algorithm>

#include "weights/formats/codebook.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockNVFP4;

constexpr float kBound = 0.25f;
constexpr float kFloor = 0x1p-9f;
constexpr int kMaxScale = 0x7e;  // 448
constexpr std::size_t kSize = 16;

/// Half the scale that a byte stands for: the values are doubled.
float half_scale(std::uint8_t byte) noexcept {
  if (byte == 0x7f) return 0.f;
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  if (exponent == 0) return std::ldexp(static_cast<float>(mantissa), -10);
  return std::ldexp(static_cast<float>(8 + mantissa), exponent - 11);
}

/// The scale byte for one sub-block.
std::uint8_t choose_scale(std::span<const float> x, std::span<const float> w) noexcept {
  const double a = largest_magnitude_of(x);
  int plain = 0;  // bytes order as the scales do
  while (plain < kMaxScale && 12 * double{half_scale(static_cast<std::uint8_t>(plain))} < a)
    ++plain;
  int best = plain;
  double best_error = std::numeric_limits<double>::infinity();
  for (int byte = plain; byte >= std::max(0, plain - 8); --byte) {
    const float scale = half_scale(static_cast<std::uint8_t>(byte));
    if (byte < plain && a - 12 * double{scale} > kBound * a) break;
    const double error = codebook_error(kNearestE2M1, x, w, scale);
    if (error < best_error) best = byte, best_error = error;
  }
  return static_cast<std::uint8_t>(best);
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  block = {};
  for (std::size_t j = 0; j < 4; ++j) {
    const auto x = in.subspan(j * kSize, kSize);
    block.d[j] = choose_scale(x, weigh.error.subspan(j * kSize, kSize));
    const double scale = half_scale(block.d[j]), inverse = scale > 0 ? 1 / scale : 0;
    for (std::size_t i = 0; i < kSize; ++i) {
      block.qs[j * 8 + i % 8] |=
          static_cast<std::uint8_t>(kNearestE2M1.nibble(x[i] * inverse) << (i < 8 ? 0 : 4));
    }
  }
}

}  // namespace

void unpack(const BlockNVFP4& block, Unpacked& out) noexcept {
  out.d = 1.f;
  for (std::size_t j = 0; j < 4; ++j) {
    out.scales[j] = half_scale(block.d[j]);
    for (std::size_t i = 0; i < kSize; ++i) {
      const std::uint8_t byte = block.qs[j * 8 + i % 8];
      out.codes[j * kSize + i] = kE2M1Values[i < 8 ? byte & 15 : byte >> 4];
    }
  }
}

constinit const FormatTraits kNVFP4Traits = {
    .format = Format::kNVFP4,
    .name = "NVFP4",
    .block_elements = Block::kElements,
    .block_bytes = sizeof(Block),
    .relative_error_bound = kBound,
    .absolute_error_floor = kFloor,
    .largest_magnitude = 448.f * 6.f,
    .dequantize = decode_row<Block, (decode_unpacked<Block, 16, false>)>,
    .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
