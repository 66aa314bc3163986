// SPDX-License-Identifier: Apache-2.0
// What the format files share: the traits objects that they define, the loop over the blocks of a
// row, and the rounding of scales. Internal to weights; everybody else goes through format.hpp.
#pragma once

#include <array>
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
extern const FormatTraits kQ4_1Traits, kQ5_1Traits, kQ2_KTraits, kQ3_KTraits, kQ5_KTraits;
extern const FormatTraits kQ8_KTraits, kIQ1_STraits, kIQ1_MTraits, kIQ2_XXSTraits, kIQ2_XSTraits;
extern const FormatTraits kIQ2_STraits, kIQ3_XXSTraits, kIQ3_STraits, kIQ4_NLTraits, kIQ4_XSTraits;
extern const FormatTraits kTQ1_0Traits, kTQ2_0Traits, kMXFP4Traits, kNVFP4Traits;

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

/// How much the errors of a block's elements weigh.
template <typename Block>
struct Weighing {
  ConstElements<Block> importance;  ///< the caller's, mean 1; all ones where there is none
  ConstElements<Block> error;       ///< what the searches weigh squared errors with
};

/// A block's importance made fit for the searches: mean 1, and no element below a thousandth of
/// that, so that one which the calibration never saw still has a value. Numbers that are no
/// importance (none positive, not finite) count as equal.
inline void take_importance(std::span<const float> importance, std::span<float> out) noexcept {
  constexpr float kLeast = 1e-3f;
  double sum = 0;
  for (const float v : importance) sum += v;
  const double mean = sum / static_cast<double>(importance.size());
  const bool usable = mean > 0 && mean < std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float v = usable ? static_cast<float>(importance[i] / mean) : 1.f;
    out[i] = v > kLeast ? v : kLeast;
  }
}

inline double mean_square(std::span<const float> x) noexcept {
  double sum = 0;
  for (const float v : x) sum += double{v} * v;
  return sum / static_cast<double>(x.size());
}

/// sqrt(v + x^2) relative to sqrt(v), where v is the row's mean square: what errors weigh where
/// nothing is known of the inputs. Least squares alone gives away the few large weights of a block
/// (they clip) for the many small ones, and a model pays for it. Importance says what an error
/// costs, so that none of this is added to it. docs/formats.md has the numbers.
inline void weigh_by_size(std::span<const float> x, double row_mean_square,
                          std::span<float> out) noexcept {
  const double inverse = row_mean_square > 0 ? 1 / row_mean_square : 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(std::sqrt(1 + inverse * x[i] * x[i]));
  }
}

/// Encodes a row block by block.
template <typename Block,
          void (*Encode)(ConstElements<Block>, const Weighing<Block>&, Block&) noexcept>
void encode_row(std::span<const float> in, std::byte* bytes, const float* importance) noexcept {
  std::array<float, Block::kElements> ones, weight;
  ones.fill(1.f);
  const double power = mean_square(in);
  for (std::size_t i = 0; i + Block::kElements <= in.size(); i += Block::kElements) {
    Block block;
    const auto x = in.subspan(i).template first<Block::kElements>();
    if (importance) {
      take_importance({importance + i, Block::kElements}, weight);
      Encode(x, {.importance = weight, .error = weight}, block);
    } else {
      weigh_by_size(x, power, weight);
      Encode(x, {.importance = ones, .error = weight}, block);
    }
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

/// The largest finite f16 that is not above `x` (-65504 where there is none).
inline std::uint16_t f16_at_most(double x) noexcept {
  if (x <= 0) return static_cast<std::uint16_t>(f16_at_least(-x) | 0x8000u);
  std::uint16_t h = f16_nearest(x);
  while (base::f16_to_f32(h) > x) --h;
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

/// Whether `block` decodes to within `bound` times the largest magnitude of what it encodes; to
/// within sqrt(1/w) times that where an element's importance w is below the mean, 1.
template <typename Block, void (*Decode)(const Block&, Elements<Block>) noexcept>
bool keeps_bound(ConstElements<Block> in, const Weighing<Block>& weigh, const Block& block,
                 double bound) noexcept {
  std::array<float, Block::kElements> decoded;
  Decode(block, decoded);
  const double limit = bound * largest_magnitude_of(in), limit2 = limit * limit;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double error = std::fabs(static_cast<double>(in[i]) - decoded[i]);
    if (error <= limit || weigh.importance[i] * error * error <= limit2) continue;
    return false;
  }
  return true;
}

}  // namespace lemma::weights::formats
