// SPDX-License-Identifier: Apache-2.0
// F16: IEEE 754 half precision, little-endian, one element a block.
//
//   byte   1        0
//          seeeeemm mmmmmmmm
//
// Worked block: 00 3c is 1.0; 01 00 is 2^-24, the smallest subnormal; ff 7b is 65504, the largest.
//
// Error: round to nearest keeps 11 significant bits, so |error| <= 2^-11 |x| for normal numbers.
// Below 2^-14 the step is a constant 2^-24, so |error| <= 2^-25. Beyond 65504 the value saturates:
// an infinite weight would poison every sum that it takes part in.
#include "weights/formats/codec.hpp"

namespace lemma::weights::formats {
namespace {

void dequantize(const std::byte* bytes, std::span<float> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, bytes + 2 * i, sizeof half);
    out[i] = base::f16_to_f32(half);
  }
}

void encode(std::span<const float> in, std::byte* bytes, const float*) noexcept {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint16_t half = f16_nearest(in[i]);
    std::memcpy(bytes + 2 * i, &half, sizeof half);
  }
}

}  // namespace

constinit const FormatTraits kF16Traits = {.format = Format::kF16,
                                           .name = "F16",
                                           .block_elements = 1,
                                           .block_bytes = 2,
                                           .relative_error_bound = 0x1p-11f,
                                           .absolute_error_floor = 0x1p-25f,
                                           .largest_magnitude = 65504.f,
                                           .dequantize = dequantize,
                                           .encode = encode};

}  // namespace lemma::weights::formats
