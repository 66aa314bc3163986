// SPDX-License-Identifier: Apache-2.0
// BF16: the upper half of an IEEE 754 single, little-endian, one element a block.
//
//   byte   1        0
//          seeeeeee emmmmmmm
//
// Worked block: 80 3f is 1.0; 81 3f is 1 + 2^-7, its successor.
//
// Error: round to nearest keeps 8 significant bits, so |error| <= 2^-8 |x| for normal numbers; the
// step of the subnormals is 2^-133, which costs at most 2^-134. Values that would round to infinity
// saturate at the largest finite number.
#include "weights/formats/codec.hpp"

namespace lemma::weights::formats {
namespace {

constexpr float kLargest = 0x1.fep127f;

void dequantize(const std::byte* bytes, std::span<float> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t upper;
    std::memcpy(&upper, bytes + 2 * i, sizeof upper);
    out[i] = base::bf16_to_f32(upper);
  }
}

void encode(std::span<const float> in, std::byte* bytes, const float*) noexcept {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float x = in[i] > kLargest ? kLargest : in[i] < -kLargest ? -kLargest : in[i];
    const std::uint16_t upper = base::f32_to_bf16(x);
    std::memcpy(bytes + 2 * i, &upper, sizeof upper);
  }
}

}  // namespace

constinit const FormatTraits kBF16Traits = {.format = Format::kBF16,
                                            .name = "BF16",
                                            .block_elements = 1,
                                            .block_bytes = 2,
                                            .relative_error_bound = 0x1p-8f,
                                            .absolute_error_floor = 0x1p-134f,
                                            .largest_magnitude = kLargest,
                                            .dequantize = dequantize,
                                            .encode = encode};

}  // namespace lemma::weights::formats
