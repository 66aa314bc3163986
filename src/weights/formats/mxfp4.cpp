// SPDX-License-Identifier: Apache-2.0
// MXFP4: 32 elements in 17 bytes, 4.25 bits an element. The OCP microscaling format: floats of 4
// bits (E2M1) and a shared power of two (E8M0): x = 2^(e - 128) * value[q], the values doubled.
//
//   byte   0 | 1        2        ...  16
//          e | q16 q0   q17 q1   ...  q31 q15      (high nibble, low nibble)
//
//   q      0 1 2 3 4 5 6 7  8  9  10 11 12 13 14 15
//   value  0 1 2 3 4 6 8 12 0  -1 -2 -3 -4 -6 -8 -12
//
// Worked block: 80 | a5 ...: e = 128, so q0 = 5 gives x0 = 6, and q16 = 10 gives x16 = -2.
//
// Error: with the smallest power p = 2^(e - 128) for which 12 p >= a (a the block's largest |x|)
// nothing clips, 6 p < a, and values are at most 4 apart: |error| <= 2 p < a/3. The encoder also
// tries the next smaller powers and keeps the least squared error within that bound. Powers go
// from 2^-128 to 2^124: above, 12 p is no finite f32.
#include <algorithm>

#include "weights/formats/codebook.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Block = BlockMXFP4;

constexpr float kBound = 0.3334f;
constexpr int kMaxExponent = 252;

/// 2^(e - 128), subnormal for e < 2.
float power(int e) noexcept {
  return std::ldexp(1.f, e - 128);
}

void encode(ConstElements<Block> in, const Weighing<Block>& weigh, Block& block) noexcept {
  const double a = largest_magnitude_of(in);
  int e = 0;
  if (a > 0) e = std::clamp(static_cast<int>(std::ceil(std::log2(a / 12))) + 128, 0, kMaxExponent);
  // A logarithm may round either way.
  while (e < kMaxExponent && 12 * double{power(e)} < a) ++e;
  int best = e;
  double best_error = codebook_error(kNearestE2M1, in, weigh.error, power(e));
  for (int smaller = e - 1; smaller >= std::max(0, e - 2); --smaller) {
    if (a - 12 * double{power(smaller)} > kBound * a) break;
    const double error = codebook_error(kNearestE2M1, in, weigh.error, power(smaller));
    if (error < best_error) best = smaller, best_error = error;
  }
  block = {};
  block.e = static_cast<std::uint8_t>(best);
  const double inverse = 1 / double{power(best)};
  for (std::size_t i = 0; i < in.size(); ++i) {
    put_split_nibble(block.qs, i, kNearestE2M1.nibble(in[i] * inverse));
  }
}

}  // namespace

void unpack(const BlockMXFP4& block, Unpacked& out) noexcept {
  out.d = power(block.e);
  out.scales[0] = 1.f;
  for (std::size_t i = 0; i < Block::kElements; ++i) {
    out.codes[i] = kE2M1Values[split_nibble(block.qs, i)];
  }
}

constinit const FormatTraits kMXFP4Traits = {
    .format = Format::kMXFP4,
    .name = "MXFP4",
    .block_elements = Block::kElements,
    .block_bytes = sizeof(Block),
    .relative_error_bound = kBound,
    .absolute_error_floor = 0x1p-128f,
    .largest_magnitude = 0x1.8p127f,
    .dequantize = decode_row<Block, (decode_unpacked<Block, 32, false>)>,
    .encode = encode_row<Block, encode>};

}  // namespace lemma::weights::formats
