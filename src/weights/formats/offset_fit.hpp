// SPDX-License-Identifier: Apache-2.0
// The encoder that Q4_1 and Q5_1 share: a block with an f16 scale and an f16 offset of its own,
// x ~ d * q + m.
//
// plain() is the encoding that the formats' error bounds are argued for: m is rounded down, so that
// every element lies above it, then d up, so that none lies above the last code. searched() looks
// for the least squared error instead.
#pragma once

#include <algorithm>

#include "weights/formats/codec.hpp"
#include "weights/formats/fit.hpp"

namespace lemma::weights::formats {

/// Codes are in [0, MaxCode].
template <int MaxCode>
struct OffsetFit {
  using In = std::span<const float, 32>;

  std::uint16_t d = 0, m = 0;

  unsigned code(double x) const noexcept {
    const double scale = base::f16_to_f32(d), offset = base::f16_to_f32(m);
    return static_cast<unsigned>(int_code(x - offset, scale != 0 ? 1 / scale : 0, 0, MaxCode));
  }

  static OffsetFit plain(In in) noexcept {
    const auto [low, high] = std::minmax_element(in.begin(), in.end());
    const std::uint16_t m = f16_at_most(*low);
    return {f16_at_least((double{*high} - base::f16_to_f32(m)) / MaxCode), m};
  }

  /// `limit`: as fit.hpp says.
  static OffsetFit searched(In in, In weight, double limit) noexcept {
    const Affine fit = fit_affine(in, weight, MaxCode, Minimum::kAny, limit);
    return {f16_nearest(fit.scale), f16_nearest(-fit.min)};
  }
};

}  // namespace lemma::weights::formats
