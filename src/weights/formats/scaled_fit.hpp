// SPDX-License-Identifier: Apache-2.0
// The encoder that Q3_K, Q6_K and IQ4_XS share: sub-blocks with a small signed scale each, which
// one f16 scale multiplies: x ~ (d * scale[j]) * value. `Codes` says which values there are:
//
//   static double fit(x, w, limit)          the ideal scale of a sub-block, of either sign
//   static double error(x, w, scale, limit) its weighted squared error
//   static int nearest(x, inverse)       the value nearest to x * inverse
//   kReach                               values reach at least from -kReach to kReach
//
// plain() is the encoding that the formats' error bounds are argued for: d and the scales are
// rounded up, so that every element lies within kReach. searched() minimizes the squared error.
#pragma once

#include <algorithm>
#include <array>

#include "weights/formats/codec.hpp"
#include "weights/formats/fit.hpp"

namespace lemma::weights::formats {

/// The whole numbers [-Levels, Levels - 1].
template <int Levels>
struct UniformCodes {
  static constexpr int kReach = Levels - 1;
  static double fit(std::span<const float> x, std::span<const float> w, double limit) noexcept {
    return fit_symmetric(x, w, Levels, limit);
  }
  static double error(std::span<const float> x, std::span<const float> w, double scale,
                      double limit) noexcept {
    return squared_error(x, w, scale, 0, -Levels, Levels - 1, limit);
  }
  static int nearest(double x, double inverse) noexcept {
    return int_code(x, inverse, -Levels, Levels - 1);
  }
};

/// Scales are in [-MaxScale - 1, MaxScale].
template <typename Codes, std::size_t SubBlocks, int MaxScale>
struct ScaledFit {
  static constexpr std::size_t kElements = 256, kSize = kElements / SubBlocks;
  using In = std::span<const float, kElements>;

  std::uint16_t d = 0;
  std::array<std::int8_t, SubBlocks> scales{};

  double scale(std::size_t j) const noexcept { return double{base::f16_to_f32(d)} * scales[j]; }
  int value(double x, std::size_t j) const noexcept {
    const double s = scale(j);
    return Codes::nearest(x, s != 0 ? 1 / s : 0);
  }

  static ScaledFit plain(In in) noexcept {
    ScaledFit fit;
    fit.d = f16_at_least(largest_magnitude_of(in) / Codes::kReach / MaxScale);
    const double unit = base::f16_to_f32(fit.d);
    for (std::size_t j = 0; j < SubBlocks && unit > 0; ++j) {
      const double step = largest_magnitude_of(in.subspan(j * kSize, kSize)) / Codes::kReach;
      fit.scales[j] = static_cast<std::int8_t>(std::min(std::ceil(step / unit), double{MaxScale}));
    }
    return fit;
  }

  /// `limit`: as fit.hpp says.
  static ScaledFit searched(In in, In weight, double limit) noexcept {
    ScaledFit fit;
    fit.limit_ = limit;
    std::array<double, SubBlocks> ideal;
    double largest = 0;
    for (std::size_t j = 0; j < SubBlocks; ++j) {
      ideal[j] = Codes::fit(in.subspan(j * kSize, kSize), weight.subspan(j * kSize, kSize), limit);
      largest = std::max(largest, std::fabs(ideal[j]));
    }
    fit.d = f16_nearest(largest / MaxScale);
    for (std::size_t j = 0; j < SubBlocks; ++j) fit.round_scale(in, weight, j, ideal[j]);
    ScaledFit better = fit.regressed(in, weight);
    for (std::size_t j = 0; j < SubBlocks; ++j) better.round_scale(in, weight, j, better.scale(j));
    return better.error(in, weight) < fit.error(in, weight) ? better : fit;
  }

 private:
  double limit_ = kNoLimit;

  double error_of(In in, In weight, std::size_t j) const noexcept {
    return Codes::error(in.subspan(j * kSize, kSize), weight.subspan(j * kSize, kSize), scale(j),
                        limit_);
  }
  double error(In in, In weight) const noexcept {
    double sum = 0;
    for (std::size_t j = 0; j < SubBlocks; ++j) sum += error_of(in, weight, j);
    return sum;
  }

  /// Takes the whole scale within one of the rounded `ideal` that has the smallest squared error.
  void round_scale(In in, In weight, std::size_t j, double ideal) noexcept {
    const double unit = base::f16_to_f32(d);
    const int nearest = int_code(ideal, unit != 0 ? 1 / unit : 0, -MaxScale, MaxScale);
    double best_error = std::numeric_limits<double>::infinity();
    std::int8_t best = 0;
    for (int s = nearest - 1; s <= std::min(MaxScale, nearest + 1); ++s) {
      scales[j] = static_cast<std::int8_t>(s);
      const double candidate = error_of(in, weight, j);
      if (candidate < best_error) best = scales[j], best_error = candidate;
    }
    scales[j] = best;
  }

  /// The same scales with d by regression on the values that they give.
  ScaledFit regressed(In in, In weight) const noexcept {
    double uu = 0, ux = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const double u = static_cast<double>(scales[i / kSize]) * value(in[i], i / kSize);
      uu += weight[i] * u * u, ux += weight[i] * u * in[i];
    }
    ScaledFit out = *this;
    if (uu > 0 && ux / uu > 0) out.d = f16_nearest(ux / uu);
    return out;
  }
};

}  // namespace lemma::weights::formats
