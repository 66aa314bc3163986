// SPDX-License-Identifier: Apache-2.0
// I32: whole numbers, two's complement, little-endian, one element a block. Tables of indices have
// it (the experts of a token), weights do not, so nothing is quantized to it.
//
// Worked block: fe ff ff ff is -2. Decoding is exact up to 2^24 in magnitude and rounds beyond.
#include "weights/formats/codec.hpp"

namespace lemma::weights::formats {
namespace {

void dequantize(const std::byte* bytes, std::span<float> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::int32_t value;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    out[i] = static_cast<float>(value);
  }
}

}  // namespace

constinit const FormatTraits kI32Traits = {.format = Format::kI32,
                                           .name = "I32",
                                           .block_elements = 1,
                                           .block_bytes = 4,
                                           .relative_error_bound = 0.f,
                                           .absolute_error_floor = 0.f,
                                           .largest_magnitude = 0x1p24f,
                                           .dequantize = dequantize,
                                           .encode = nullptr};

}  // namespace lemma::weights::formats
