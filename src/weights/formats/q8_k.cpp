// SPDX-License-Identifier: Apache-2.0
// Q8_K: 256 elements in 292 bytes, 9.125 bits an element. Symmetric with an f32 scale: x = d * q.
// GGML keeps activations in it; files of weights rarely do.
//
//   byte   0 .. 3 | 4    5    ...  259  | 260 ....... 291
//          d f32  | q0   q1   ...  q255 | 16 sums, i16      sums[j] = q[16 j] + ... + q[16 j + 15]
//
// Worked block: 00 00 00 3f | 02 fe ... has d = 0.5, so its elements are 1, -1, ...
//
// Error: d = a/127 rounded up (a the block's largest |x|), so no code clips and |error| <= d/2 <=
// a/254 * (1 + 2^-22). The sums are written and not read.
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockQ8_K;

constexpr float kLargest = 0x1.fffff0p127f;  // d * 127 stays finite when d is rounded up

/// The smallest f32 that is not below x >= 0.
float f32_at_least(double x) noexcept {
  const auto f = static_cast<float>(x);
  return f < x ? std::nextafter(f, std::numeric_limits<float>::max()) : f;
}

void encode(ConstElements<Block> in, const Weighing<Block>&, Block& block) noexcept {
  const double a = largest_magnitude_of(in);
  block.d = f32_at_least((a < kLargest ? a : kLargest) / 127);
  const double inverse = block.d > 0 ? 1 / double{block.d} : 0;
  for (std::size_t j = 0; j < 16; ++j) {
    int sum = 0;
    for (std::size_t i = j * 16; i < j * 16 + 16; ++i) {
      block.qs[i] = static_cast<std::int8_t>(int_code(in[i], inverse, -127, 127));
      sum += block.qs[i];
    }
    block.sums[j] = static_cast<std::int16_t>(sum);
  }
}

}  // namespace

void unpack(const BlockQ8_K& block, Unpacked& out) noexcept {
  out.d = block.d;
  out.scales.fill(1.f);
  std::memcpy(out.codes.data(), block.qs, sizeof block.qs);
}

constinit const FormatTraits kQ8_KTraits = {
    .format = Format::kQ8_K,
    .name = "Q8_K",
    .block_elements = Block::kElements,
    .block_bytes = sizeof(Block),
    .relative_error_bound = 0.003938f,
    .absolute_error_floor = std::numeric_limits<float>::denorm_min(),
    .largest_magnitude = kLargest,
    .dequantize = decode_row<Block, (decode_unpacked<Block, 32, false>)>,
    .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
