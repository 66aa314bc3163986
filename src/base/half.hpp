// SPDX-License-Identifier: Apache-2.0
// Scalar conversions between f32 and the 16-bit floats f16 (IEEE binary16: 1 sign, 5 exponent,
// 10 mantissa bits) and bf16 (the upper half of an f32: 1, 8, 7). The values are held as their
// bits in std::uint16_t. Narrowing rounds to nearest, ties to even; subnormals, infinities and
// overflow to infinity are as IEEE 754 says. A NaN stays a NaN: it becomes quiet and keeps the
// upper bits of its payload, which is what the processors' own instructions do.
// These definitions are what every vector kernel must agree with bit for bit.
#pragma once

#include <bit>
#include <cstdint>

namespace lemma::base {

constexpr float f16_to_f32(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) {  // infinity or NaN
    const std::uint32_t quiet = mantissa != 0 ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  // The exponent biases are 15 and 127.
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

constexpr std::uint16_t f32_to_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // >= 65536
  if (magnitude >= 0x38800000u) {  // >= 2^-14: normal
    // Adding just under half of the dropped bits, plus one where the kept part is odd, rounds to
    // even; a carry runs on into the exponent, and at the top into infinity, as it should.
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
  }
  if (magnitude <= 0x33000000u) return static_cast<std::uint16_t>(sign);  // <= 2^-25 ties to zero
  // Subnormal result in units of 2^-24: the f32 is mantissa * 2^(exponent - 150).
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t shift = 126u - exponent;  // 14..24
  const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
  const std::uint32_t half = 1u << (shift - 1u);
  std::uint32_t units = mantissa >> shift;
  if (rest > half || (rest == half && (units & 1u) != 0)) ++units;
  return static_cast<std::uint16_t>(sign | units);
}

constexpr float bf16_to_f32(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr std::uint16_t f32_to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace lemma::base
