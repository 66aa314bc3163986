// SPDX-License-Identifier: Apache-2.0
// F32: IEEE 754 single precision, little-endian, one element a block.
//
//   byte   3        2        1        0
//          seeeeeee emmmmmmm mmmmmmmm mmmmmmmm
//
// Worked block: 00 00 80 3f is 1.0. Exact in both directions.
#include "weights/formats/codec.hpp"

namespace lemma::weights::formats {
namespace {

void dequantize(const std::byte* bytes, std::span<float> out) noexcept {
  if (!out.empty()) std::memcpy(out.data(), bytes, out.size_bytes());
}

void encode(std::span<const float> in, std::byte* bytes, const float*) noexcept {
  if (!in.empty()) std::memcpy(bytes, in.data(), in.size_bytes());
}

}  // namespace

constinit const FormatTraits kF32Traits = {.format = Format::kF32,
                                           .name = "F32",
                                           .block_elements = 1,
                                           .block_bytes = 4,
                                           .relative_error_bound = 0.f,
                                           .absolute_error_floor = 0.f,
                                           .largest_magnitude = std::numeric_limits<float>::max(),
                                           .dequantize = dequantize,
                                           .encode = encode};

}  // namespace lemma::weights::formats
