// SPDX-License-Identifier: Apache-2.0
#include "weights/formats/signed_grid.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "weights/formats/codec.hpp"

namespace lemma::weights::formats {
namespace {

constexpr std::size_t kElements = 256, kOctet = 8;
constexpr int kMaxScale = 15;

// Starting scales, as parts of the one that just reaches the largest magnitude. The levels are
// widely spaced, so clipping a lone outlier by a quarter often pays.
constexpr std::array kStarts = {0.66, 0.74, 0.82, 0.88, 0.94, 1.0, 1.06, 1.14, 1.24};

/// Magnitudes of a block; where a sign had to be changed, the magnitude is negative.
using Magnitudes = std::array<float, kElements>;

Magnitudes split_signs(const SignedGrid& format, std::span<const float, kElements> in,
                       std::span<const float, kElements> weight, SignedGridBlock& out) noexcept {
  Magnitudes magnitudes;
  for (std::size_t o = 0; o < kElements / kOctet; ++o) {
    unsigned signs = 0;
    std::size_t cheapest = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < kOctet; ++i) {
      const float x = in[o * kOctet + i];
      if (x < 0) signs |= 1u << i;
      magnitudes[o * kOctet + i] = std::fabs(x);
      const double cost = double{weight[o * kOctet + i]} * x * x;
      if (cost < least) least = cost, cheapest = i;
    }
    if (format.even_signs && std::popcount(signs) % 2 != 0) {
      signs ^= 1u << cheapest;
      magnitudes[o * kOctet + cheapest] *= -1.f;
    }
    out.signs[o] = static_cast<std::uint8_t>(signs);
  }
  return magnitudes;
}

struct Sums {
  double wgg = 0, wxg = 0, error = 0;
};

/// Chooses the points of one group for a scale. `points`, if not null, are written.
Sums take_points(const SignedGrid& format, const float* x, const float* w, double scale,
                 std::uint16_t* points) noexcept {
  Sums sums;
  const std::size_t n = format.grid.dimensions();
  const double inverse = scale > 0 ? 1 / scale : 0;
  for (std::size_t at = 0; at < format.group; at += n) {
    float scaled[kOctet];
    for (std::size_t i = 0; i < n; ++i) scaled[i] = static_cast<float>(x[at + i] * inverse);
    const std::size_t index = format.grid.nearest(scaled, w + at);
    if (points) points[at / n] = static_cast<std::uint16_t>(index);
    const float* const g = format.grid.point(index);
    for (std::size_t i = 0; i < n; ++i) {
      const double wg = double{w[at + i]} * g[i], difference = x[at + i] - scale * g[i];
      sums.wgg += wg * g[i], sums.wxg += wg * x[at + i];
      sums.error += w[at + i] * difference * difference;
    }
  }
  return sums;
}

/// The scale of least error for one group.
double fit_scale(const SignedGrid& format, const float* x, const float* w) noexcept {
  const double top = largest_magnitude_of({x, format.group});
  if (!(top > 0)) return 0;
  double best = 0, best_gain = 0;
  for (const double start : kStarts) {
    const Sums sums = take_points(format, x, w, start * top / format.grid.reach(), nullptr);
    if (!(sums.wxg > 0)) continue;
    // What the points save of the sum of w x^2 with the best scale for them.
    const double gain = sums.wxg * sums.wxg / sums.wgg;
    if (gain > best_gain) best = sums.wxg / sums.wgg, best_gain = gain;
  }
  if (!(best > 0)) return 0;
  const Sums sums = take_points(format, x, w, best, nullptr);
  return sums.wxg > 0 ? sums.wxg / sums.wgg : best;
}

class Search {
 public:
  Search(const SignedGrid& format, const Magnitudes& magnitudes, const float* weight)
      : format_(format), x_(magnitudes), w_(weight) {}

  void choose_scales(SignedGridBlock& out) const noexcept {
    std::array<double, 16> ideal{};
    double largest = 0;
    for (std::size_t g = 0; g < groups(); ++g) {
      ideal[g] = fit_scale(format_, x(g), w(g));
      largest = std::max(largest, ideal[g]);
    }
    out.d = f16_nearest(largest / (2 * kMaxScale + 1) / format_.unit);
    const double unit = unit_of(out);
    for (std::size_t g = 0; g < groups() && unit > 0; ++g) {
      const int near = int_code(ideal[g] / unit - 1, 0.5, 0, kMaxScale);
      double best = std::numeric_limits<double>::infinity();
      for (int s = std::max(0, near - 1); s <= std::min(kMaxScale, near + 1); ++s) {
        const double error = take_points(format_, x(g), w(g), unit * (2 * s + 1), nullptr).error;
        if (error < best) out.scales[g] = static_cast<std::uint8_t>(s), best = error;
      }
    }
  }

  /// Writes the points; returns the error and, by regression, the d that suits them.
  double take(SignedGridBlock& out, double& better_d) const noexcept {
    double wgg = 0, wxg = 0, error = 0;
    for (std::size_t g = 0; g < groups(); ++g) {
      const double factor = format_.unit * (2 * out.scales[g] + 1);
      const Sums sums = take_points(format_, x(g), w(g), base::f16_to_f32(out.d) * factor,
                                    &out.points[g * format_.group / format_.grid.dimensions()]);
      wgg += factor * factor * sums.wgg, wxg += factor * sums.wxg, error += sums.error;
    }
    better_d = wgg > 0 ? wxg / wgg : 0;
    return error;
  }

 private:
  std::size_t groups() const noexcept { return kElements / format_.group; }
  double unit_of(const SignedGridBlock& out) const noexcept {
    return base::f16_to_f32(out.d) * format_.unit;
  }
  const float* x(std::size_t g) const noexcept { return &x_[g * format_.group]; }
  const float* w(std::size_t g) const noexcept { return w_ + g * format_.group; }

  const SignedGrid& format_;
  const Magnitudes& x_;
  const float* w_;
};

}  // namespace

SignedGridBlock search_signed_grid(const SignedGrid& format, std::span<const float, 256> in,
                                   std::span<const float, 256> weight) noexcept {
  SignedGridBlock out;
  const Magnitudes magnitudes = split_signs(format, in, weight, out);
  const Search search(format, magnitudes, weight.data());
  search.choose_scales(out);
  double better_d = 0, unused = 0;
  const double error = search.take(out, better_d);
  if (!(better_d > 0)) return out;
  SignedGridBlock second = out;
  second.d = f16_nearest(better_d);
  return search.take(second, unused) < error ? second : out;
}

SignedGridBlock plain_signed_grid(const SignedGrid& format,
                                  std::span<const float, 256> in) noexcept {
  SignedGridBlock out;
  std::array<float, kElements> equal;
  equal.fill(1.f);
  const Magnitudes magnitudes = split_signs(format, in, equal, out);
  const double reach = format.grid.reach();
  out.d = f16_at_least(largest_magnitude_of(in) / reach / (2 * kMaxScale + 1) / format.unit);
  const double unit = base::f16_to_f32(out.d) * format.unit;
  const std::size_t n = format.grid.dimensions();
  for (std::size_t g = 0; g < kElements / format.group && unit > 0; ++g) {
    const auto x = std::span(magnitudes).subspan(g * format.group, format.group);
    const double least = std::ceil((largest_magnitude_of(x) / reach / unit - 1) / 2);
    const double s = std::clamp(least, 0.0, double{kMaxScale});
    out.scales[g] = static_cast<std::uint8_t>(s);
    const double inverse = 1 / (unit * (2 * s + 1));
    for (std::size_t at = 0; at < format.group; at += n) {
      float scaled[kOctet];
      for (std::size_t i = 0; i < n; ++i) scaled[i] = static_cast<float>(x[at + i] * inverse);
      out.points[(g * format.group + at) / n] =
          static_cast<std::uint16_t>(format.grid.least_worst(scaled));
    }
  }
  return out;
}

}  // namespace lemma::weights::formats
