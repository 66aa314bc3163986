// SPDX-License-Identifier: Apache-2.0
// What the format files share: the traits objects that they define, the loop over the blocks of a
// row, and the rounding of scales. Internal to weights; everybody else goes through format.hpp.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "base/half.hpp"
#include "weights/format.hpp"

namespace lemma::weights::formats {

extern const FormatTraits kF32Traits, kF16Traits, kBF16Traits, kI32Traits;
extern const FormatTraits kQ8_0Traits, kQ4_0Traits, kQ5_0Traits, kQ4_KTraits, kQ6_KTraits;

/// The smallest scale that f16 can hold. It bounds what a scale's rounding costs a tiny block.
constexpr float kSmallestScale = 0x1p-24f;
constexpr float kLargestScale = 65504.f;

/// One block's elements.
template <typename Block>
using Elements = std::span<float, Block::kElements>;
template <typename Block>
using ConstElements = std::span<const float, Block::kElements>;

/// Decodes a row block by block. The copy makes the row's alignment irrelevant.
template <typename Block, void (*Decode)(const Block&, Elements<Block>) noexcept>
void decode_row(const std::byte* bytes, std::span<float> out) noexcept {
  for (std::size_t i = 0; i + Block::kElements <= out.size(); i += Block::kElements) {
    Block block;
    std::memcpy(&block, bytes, sizeof block);
    Decode(block, out.subspan(i).template first<Block::kElements>());
    bytes += sizeof block;
  }
}

template <typename Block, void (*Encode)(ConstElements<Block>, Block&) noexcept>
void encode_row(std::span<const float> in, std::byte* bytes) noexcept {
  for (std::size_t i = 0; i + Block::kElements <= in.size(); i += Block::kElements) {
    Block block;
    Encode(in.subspan(i).template first<Block::kElements>(), block);
    std::memcpy(bytes, &block, sizeof block);
    bytes += sizeof block;
  }
}

/// The f16 nearest to `x`, kept finite: beyond +-65504 the largest one.
inline std::uint16_t f16_nearest(double x) noexcept {
  const double limit = kLargestScale;
  return base::f32_to_f16(static_cast<float>(x > limit ? limit : x < -limit ? -limit : x));
}

/// The smallest finite f16 that is not below `x` >= 0 (65504 where there is none). Scales rounded
/// up never clip the element that they were made for.
inline std::uint16_t f16_at_least(double x) noexcept {
  std::uint16_t h = f16_nearest(x);
  // Positive f16 values order as their bit patterns do.
  while (base::f16_to_f32(h) < x && base::f16_to_f32(h) < kLargestScale) ++h;
  return h;
}

/// round(x * inverse) within [low, high]; ties to even. Branch-free, since the encoders' searches
/// spend their time here: adding 1.5 * 2^52 leaves no fraction bits in a double.
inline double code(double x, double inverse, int low, int high) noexcept {
  constexpr double kNoFraction = 0x1.8p52;
  double q = x * inverse;
  q = q > low ? q : low;
  q = q < high ? q : high;
  return (q + kNoFraction) - kNoFraction;
}

inline int int_code(double x, double inverse, int low, int high) noexcept {
  return static_cast<int>(code(x, inverse, low, high));
}

inline double largest_magnitude_of(std::span<const float> x) noexcept {
  float a = 0;
  for (const float v : x) a = std::fabs(v) > a ? std::fabs(v) : a;
  return a;
}

/// Whether every element of `decoded` is within `bound` of its original.
inline bool within(std::span<const float> in, std::span<const float> decoded,
                   double bound) noexcept {
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!(std::fabs(static_cast<double>(in[i]) - decoded[i]) <= bound)) return false;
  }
  return true;
}

}  // namespace lemma::weights::formats
