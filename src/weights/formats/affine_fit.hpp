// SPDX-License-Identifier: Apache-2.0
// The encoder that Q2_K, Q4_K and Q5_K share: sub-blocks with a small whole scale and a small whole
// minimum each, which two f16 scales multiply: x ~ (d * scale[j]) * q - (dmin * min[j]).
//
// plain() is the encoding that the formats' error bounds are argued for: dmin and the minimums are
// rounded up, so that every element lies above its sub-block's minimum, then d and the scales, so
// that none lies above the last code. searched() looks for the least squared error instead.
#pragma once

#include <algorithm>
#include <array>

#include "weights/formats/blocks.hpp"
#include "weights/formats/codec.hpp"
#include "weights/formats/fit.hpp"

namespace lemma::weights::formats {

/// Scales and minimums are in [0, MaxPart], codes in [0, MaxCode].
template <std::size_t SubBlocks, int MaxPart, int MaxCode>
struct AffineFit {
  static constexpr std::size_t kElements = 256, kSize = kElements / SubBlocks;
  using In = std::span<const float, kElements>;

  std::uint16_t d = 0, dmin = 0;
  std::array<ScaleMin, SubBlocks> pairs{};

  double scale(std::size_t j) const noexcept {
    return double{base::f16_to_f32(d)} * pairs[j].scale;
  }
  double minimum(std::size_t j) const noexcept {
    return double{base::f16_to_f32(dmin)} * pairs[j].min;
  }
  int code(double x, std::size_t j) const noexcept {
    const double s = scale(j);
    return int_code(x + minimum(j), s != 0 ? 1 / s : 0, 0, MaxCode);
  }

  static AffineFit plain(In in) noexcept {
    AffineFit fit;
    std::array<double, SubBlocks> lows, steps;
    double deepest = 0, widest = 0;
    for (std::size_t j = 0; j < SubBlocks; ++j) {
      const auto x = in.subspan(j * kSize, kSize);
      lows[j] = std::min(0.0, static_cast<double>(*std::min_element(x.begin(), x.end())));
      deepest = std::max(deepest, -lows[j]);
    }
    fit.dmin = f16_at_least(deepest / MaxPart);
    for (std::size_t j = 0; j < SubBlocks; ++j) {
      const auto x = in.subspan(j * kSize, kSize);
      fit.pairs[j].min = part_at_least(-lows[j], base::f16_to_f32(fit.dmin));
      steps[j] = (*std::max_element(x.begin(), x.end()) + fit.minimum(j)) / MaxCode;
      widest = std::max(widest, steps[j]);
    }
    fit.d = f16_at_least(widest / MaxPart);
    for (std::size_t j = 0; j < SubBlocks; ++j) {
      fit.pairs[j].scale = part_at_least(steps[j], base::f16_to_f32(fit.d));
    }
    return fit;
  }

  /// `limit`: as fit.hpp says.
  static AffineFit searched(In in, In weight, double limit) noexcept {
    AffineFit fit;
    fit.limit_ = limit;
    std::array<Affine, SubBlocks> ideal;
    double scale = 0, min = 0;
    for (std::size_t j = 0; j < SubBlocks; ++j) {
      ideal[j] = fit_affine(in.subspan(j * kSize, kSize), weight.subspan(j * kSize, kSize), MaxCode,
                            Minimum::kNotNegative, limit);
      scale = std::max(scale, ideal[j].scale);
      min = std::max(min, ideal[j].min);
    }
    fit.d = f16_nearest(scale / MaxPart);
    fit.dmin = f16_nearest(min / MaxPart);
    for (std::size_t j = 0; j < SubBlocks; ++j) fit.round_pair(in, weight, j, ideal[j]);
    // The rounded parts and codes leave d and dmin room for a last regression.
    AffineFit better = fit.regressed(in, weight);
    for (std::size_t j = 0; j < SubBlocks; ++j) {
      better.round_pair(in, weight, j, {better.scale(j), better.minimum(j)});
    }
    return better.error(in, weight) < fit.error(in, weight) ? better : fit;
  }

 private:
  double limit_ = kNoLimit;

  static std::uint8_t part_at_least(double x, double unit) noexcept {
    if (!(unit > 0)) return 0;
    return static_cast<std::uint8_t>(std::clamp(std::ceil(x / unit), 0.0, double{MaxPart}));
  }

  double error_of(In in, In weight, std::size_t j) const noexcept {
    return squared_error(in.subspan(j * kSize, kSize), weight.subspan(j * kSize, kSize), scale(j),
                         minimum(j), 0, MaxCode, limit_);
  }
  double error(In in, In weight) const noexcept {
    double sum = 0;
    for (std::size_t j = 0; j < SubBlocks; ++j) sum += error_of(in, weight, j);
    return sum;
  }

  /// Takes the pair within one of the rounded `ideal` that has the smallest squared error.
  void round_pair(In in, In weight, std::size_t j, const Affine& ideal) noexcept {
    const double unit = base::f16_to_f32(d), unit_min = base::f16_to_f32(dmin);
    const int s0 = int_code(ideal.scale, unit > 0 ? 1 / unit : 0, 0, MaxPart);
    const int m0 = int_code(ideal.min, unit_min > 0 ? 1 / unit_min : 0, 0, MaxPart);
    ScaleMin best{};
    double best_error = std::numeric_limits<double>::infinity();
    for (int s = std::max(0, s0 - 1); s <= std::min(MaxPart, s0 + 1); ++s) {
      for (int m = std::max(0, m0 - 1); m <= std::min(MaxPart, m0 + 1); ++m) {
        pairs[j] = {static_cast<std::uint8_t>(s), static_cast<std::uint8_t>(m)};
        const double candidate = error_of(in, weight, j);
        if (candidate < best_error) best = pairs[j], best_error = candidate;
      }
    }
    pairs[j] = best;
  }

  /// The same parts with d and dmin by regression on the codes that they give.
  AffineFit regressed(In in, In weight) const noexcept {
    double uu = 0, uv = 0, vv = 0, ux = 0, vx = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const std::size_t j = i / kSize;
      const auto u = static_cast<double>(pairs[j].scale * code(in[i], j));
      const auto v = -static_cast<double>(pairs[j].min);
      uu += weight[i] * u * u, uv += weight[i] * u * v, vv += weight[i] * v * v;
      ux += weight[i] * u * in[i], vx += weight[i] * v * in[i];
    }
    AffineFit out = *this;
    const double determinant = uu * vv - uv * uv;
    if (!(determinant > 1e-9 * uu * vv)) return out;
    const double scale = (ux * vv - vx * uv) / determinant;
    const double min = (vx * uu - ux * uv) / determinant;
    if (scale > 0 && min >= 0) out.d = f16_nearest(scale), out.dmin = f16_nearest(min);
    return out;
  }
};

/// Packs the 6-bit scales and minimums of Q4_K and Q5_K; q4_k.cpp draws where they lie.
inline void pack_scale_mins(const std::array<ScaleMin, 8>& pairs, std::uint8_t* scales) noexcept {
  for (std::size_t j = 0; j < 4; ++j) {
    const ScaleMin low = pairs[j], high = pairs[j + 4];
    scales[j] = static_cast<std::uint8_t>(low.scale | high.scale >> 4 << 6);
    scales[j + 4] = static_cast<std::uint8_t>(low.min | high.min >> 4 << 6);
    scales[j + 8] = static_cast<std::uint8_t>((high.scale & 15) | (high.min & 15) << 4);
  }
}

}  // namespace lemma::weights::formats
