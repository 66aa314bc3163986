// SPDX-License-Identifier: Apache-2.0
#include "algorithm/fp_formats.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.hpp"
#include "base/half.hpp"

namespace lemma::algorithm {
namespace {

constexpr float kLargestE4m3 = 448.f, kLargestF16 = 65504.f;
/// Below these largest values a group's scale no longer shrinks. DeepSeek V4's constants: the first
/// spares fp8 groups of noise, the second is the smallest scale that is a normal f32.
constexpr float kFp8Floor = 1e-4f, kFp4Floor = 0x1.8p-124f;  // 6 * 2^-126
constexpr int kBias = 127;

constexpr std::array<float, 8> kE2m1 = {0.f, 0.5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f};

/// The smallest k with m * 2^e <= limit * 2^k, for limit = `fraction` * 2^`exponent`.
int scale_exponent(float largest, float fraction, int exponent) noexcept {
  int e = 0;
  const float m = std::frexp(largest, &e);  // in [0.5, 1), exact
  return e - exponent + (m > fraction ? 1 : 0);
}

/// The largest magnitude, at least `floor`; negative if an element is not finite.
float largest_of(std::span<const float> group, float floor) noexcept {
  float largest = floor;
  for (const float x : group) {
    if (!std::isfinite(x)) return -1.f;
    largest = std::max(largest, std::fabs(x));
  }
  return largest;
}

std::uint8_t load8(const std::byte* bytes) noexcept {
  return std::to_integer<std::uint8_t>(*bytes);
}

}  // namespace

std::uint8_t f32_to_e4m3(float x) noexcept {
  const auto sign = std::uint8_t(std::signbit(x) ? 0x80 : 0);
  if (std::isnan(x)) return sign | 0x7f;
  const float magnitude = std::min(std::fabs(x), kLargestE4m3);
  int e = 0;
  if (std::frexp(magnitude, &e) == 0.f) return sign;
  const int exponent = std::max(e - 1, -6);  // of the leading bit; subnormals share the lowest
  // Rounding to whole steps of 2^(exponent - 3) may carry into the next exponent; so does the code.
  const int steps = int(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  return std::uint8_t(sign | (8 * (exponent + 6) + steps));
}

float e4m3_to_f32(std::uint8_t code) noexcept {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float sign = (code & 0x80) != 0 ? -1.f : 1.f;
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(float(mantissa), -9);
  return sign * std::ldexp(float(8 + mantissa), exponent - 10);
}

std::uint8_t f32_to_e2m1(float x) noexcept {
  const auto sign = std::uint8_t(std::signbit(x) ? 8 : 0);
  const float magnitude = std::fabs(x);
  std::uint8_t best = 0;
  for (std::uint8_t code = 1; code < kE2m1.size(); ++code) {
    const float middle = (kE2m1[code - 1u] + kE2m1[code]) / 2;
    if (magnitude > middle || (magnitude == middle && code % 2 == 0)) best = code;
  }
  return sign | best;
}

float e2m1_to_f32(std::uint8_t code) noexcept {
  const float magnitude = kE2m1[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

float e8m0_to_f32(std::uint8_t code) noexcept {
  if (code == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.f, int(code) - kBias);
}

int fp8_scale_exponent(float largest) noexcept {
  return scale_exponent(largest, 0.875f, 9);  // 448 = 0.875 * 2^9
}

int fp4_scale_exponent(float largest) noexcept {
  return scale_exponent(largest, 0.75f, 3);  // 6 = 0.75 * 2^3
}

static std::size_t fp8_scales(std::size_t coded) noexcept {
  return (coded + kFp8Group - 1) / kFp8Group;
}

std::size_t fp8_row_bytes(std::size_t width, std::size_t tail) noexcept {
  LEMMA_CHECK(tail <= width);
  return (width - tail) + fp8_scales(width - tail) + 2 * tail;
}

bool encode_fp8_row(std::span<const float> row, std::size_t tail, std::byte* bytes) noexcept {
  LEMMA_CHECK(tail <= row.size());
  const std::size_t coded = row.size() - tail;
  std::byte* const scales = bytes + coded;
  for (std::size_t begin = 0; begin < coded; begin += kFp8Group) {
    const std::size_t end = std::min(begin + kFp8Group, coded);
    const float largest = largest_of(row.subspan(begin, end - begin), kFp8Floor);
    if (largest < 0.f) return false;
    const int k = fp8_scale_exponent(largest);
    scales[begin / kFp8Group] = std::byte(std::uint8_t(k + kBias));
    for (std::size_t i = begin; i < end; ++i) {
      bytes[i] = std::byte(f32_to_e4m3(std::ldexp(row[i], -k)));
    }
  }
  std::byte* const last = scales + fp8_scales(coded);
  for (std::size_t i = 0; i < tail; ++i) {
    const float x = row[coded + i];
    if (!(std::fabs(x) <= kLargestF16)) return false;
    const std::uint16_t bits = base::f32_to_f16(x);
    std::memcpy(last + 2 * i, &bits, 2);
  }
  return true;
}

void decode_fp8_row(const std::byte* bytes, std::size_t tail, std::span<float> row) noexcept {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (std::size_t code = 0; code < 256; ++code) values[code] = e4m3_to_f32(std::uint8_t(code));
    return values;
  }();
  LEMMA_CHECK(tail <= row.size());
  const std::size_t coded = row.size() - tail;
  const std::byte* const scales = bytes + coded;
  for (std::size_t i = 0; i < coded; ++i) {
    row[i] = table[load8(bytes + i)] * e8m0_to_f32(load8(scales + i / kFp8Group));
  }
  const std::byte* const last = scales + fp8_scales(coded);
  for (std::size_t i = 0; i < tail; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, last + 2 * i, 2);
    row[coded + i] = base::f16_to_f32(bits);
  }
}

std::size_t fp4_row_bytes(std::size_t width) noexcept {
  LEMMA_CHECK(width % kFp4Group == 0);
  return width / 2 + width / kFp4Group;
}

bool encode_fp4_row(std::span<const float> row, std::byte* bytes) noexcept {
  LEMMA_CHECK(row.size() % kFp4Group == 0);
  std::byte* const scales = bytes + row.size() / 2;
  for (std::size_t begin = 0; begin < row.size(); begin += kFp4Group) {
    const float largest = largest_of(row.subspan(begin, kFp4Group), kFp4Floor);
    if (largest < 0.f) return false;
    const int k = fp4_scale_exponent(largest);
    scales[begin / kFp4Group] = std::byte(std::uint8_t(k + kBias));
    for (std::size_t i = begin; i < begin + kFp4Group; i += 2) {
      const std::uint8_t even = f32_to_e2m1(std::ldexp(row[i], -k));
      const std::uint8_t odd = f32_to_e2m1(std::ldexp(row[i + 1], -k));
      bytes[i / 2] = std::byte(std::uint8_t(even | odd << 4));
    }
  }
  return true;
}

void decode_fp4_row(const std::byte* bytes, std::span<float> row) noexcept {
  LEMMA_CHECK(row.size() % kFp4Group == 0);
  const std::byte* const scales = bytes + row.size() / 2;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint8_t pair = load8(bytes + i / 2);
    const auto code = std::uint8_t(i % 2 == 0 ? pair & 15 : pair >> 4);
    row[i] = e2m1_to_f32(code) * e8m0_to_f32(load8(scales + i / kFp4Group));
  }
}

void hadamard(std::span<float> row) noexcept {
  const std::size_t n = row.size();
  LEMMA_CHECK(n > 0 && (n & (n - 1)) == 0);
  for (std::size_t stride = 1; stride < n; stride *= 2) {
    for (std::size_t i = 0; i < n; ++i) {
      if ((i & stride) != 0) continue;
      const float a = row[i], b = row[i + stride];
      row[i] = a + b;
      row[i + stride] = a - b;
    }
  }
  const float norm = float(1.0 / std::sqrt(double(n)));
  for (float& value : row) value *= norm;
}

}  // namespace lemma::algorithm
