// SPDX-License-Identifier: Apache-2.0
#include "weights/formats/iq1_fit.hpp"

#include <algorithm>
#include <limits>

#include "weights/formats/codec.hpp"
#include "weights/formats/grid_search.hpp"
#include "weights/formats/grids.hpp"

namespace lemma::weights::formats {
namespace {

constexpr std::size_t kElements = 256, kOctet = 8;
constexpr int kMaxScale = 7;
constexpr float kShift = 0.125f;

// Starting scales, as parts of the largest magnitude. Ternary codes serve normal weights best when
// everything above 0.6 deviations becomes about 1.2, so the largest are clipped to half.
constexpr std::array kStarts = {0.30, 0.37, 0.44, 0.51, 0.58, 0.66, 0.75, 0.88};

const GridSearch& grid() noexcept {
  static const GridSearch search(kIQ1Grid, kOctet, kIQ1Levels);
  return search;
}

struct Sums {
  double wgg = 0, wxg = 0, error = 0;

  void operator+=(const Sums& other) noexcept {
    wgg += other.wgg, wxg += other.wxg, error += other.error;
  }
};

/// The best point of 8 elements for a scale and a shift.
Sums take_point(const float* x, const float* w, double scale, bool down,
                std::uint16_t& index) noexcept {
  const float shift = down ? -kShift : kShift;
  const double inverse = scale > 0 ? 1 / scale : 0;
  float scaled[kOctet];
  for (std::size_t i = 0; i < kOctet; ++i) scaled[i] = static_cast<float>(x[i] * inverse) - shift;
  index = static_cast<std::uint16_t>(grid().nearest(scaled, w));
  const float* const g = grid().point(index);
  Sums sums;
  for (std::size_t i = 0; i < kOctet; ++i) {
    const double y = g[i] + shift, wy = w[i] * y, difference = x[i] - scale * y;
    sums.wgg += wy * y, sums.wxg += wy * x[i], sums.error += w[i] * difference * difference;
  }
  return sums;
}

/// One group's points and shifts for a scale.
struct Choice {
  Sums sums;
  std::array<std::uint16_t, 4> points;
  std::array<bool, 4> down;
};

Choice take_points(const IQ1Shape& shape, const float* x, const float* w, double scale) noexcept {
  Choice out{};
  const std::size_t octets = shape.shift / kOctet;
  for (std::size_t first = 0; first < shape.group / kOctet; first += octets) {
    double least = std::numeric_limits<double>::infinity();
    Sums kept;
    for (const bool down : {false, true}) {
      Sums sums;
      std::array<std::uint16_t, 4> points;
      for (std::size_t o = 0; o < octets; ++o) {
        const std::size_t at = (first + o) * kOctet;
        sums += take_point(x + at, w + at, scale, down, points[o]);
      }
      if (!(sums.error < least)) continue;
      least = sums.error;
      kept = sums;
      for (std::size_t o = 0; o < octets; ++o) {
        out.points[first + o] = points[o];
        out.down[first + o] = down;
      }
    }
    out.sums += kept;
  }
  return out;
}

double fit_scale(const IQ1Shape& shape, const float* x, const float* w) noexcept {
  const double top = largest_magnitude_of({x, shape.group});
  double best = 0, best_gain = 0;
  for (const double start : kStarts) {
    const Sums sums = take_points(shape, x, w, start * top).sums;
    if (!(sums.wxg > 0)) continue;
    const double gain = sums.wxg * sums.wxg / sums.wgg;
    if (gain > best_gain) best = sums.wxg / sums.wgg, best_gain = gain;
  }
  if (!(best > 0)) return 0;
  const Sums sums = take_points(shape, x, w, best).sums;
  return sums.wxg > 0 ? sums.wxg / sums.wgg : best;
}

/// Fills in points and shifts for scales that are decided; returns the sums in units of d.
Sums take_all(const IQ1Shape& shape, const float* x, const float* w, IQ1Block& out) noexcept {
  Sums all;
  const double d = base::f16_to_f32(out.d);
  for (std::size_t g = 0; g < kElements / shape.group; ++g) {
    const double factor = 2 * out.scales[g] + 1;
    const std::size_t at = g * shape.group;
    const Choice choice = take_points(shape, x + at, w + at, d * factor);
    for (std::size_t o = 0; o < shape.group / kOctet; ++o) {
      out.points[at / kOctet + o] = choice.points[o];
      out.down[at / kOctet + o] = choice.down[o];
    }
    all += {choice.sums.wgg * factor * factor, choice.sums.wxg * factor, choice.sums.error};
  }
  return all;
}

}  // namespace

IQ1Block fit_iq1(const IQ1Shape& shape, std::span<const float, 256> in,
                 std::span<const float, 256> weight) noexcept {
  const float *const x = in.data(), *const w = weight.data();
  const std::size_t groups = kElements / shape.group;
  IQ1Block out;
  std::array<double, 16> ideal{};
  double largest = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    ideal[g] = fit_scale(shape, x + g * shape.group, w + g * shape.group);
    largest = std::max(largest, ideal[g]);
  }
  out.d = f16_nearest(largest / (2 * kMaxScale + 1));
  const double unit = base::f16_to_f32(out.d);
  for (std::size_t g = 0; g < groups && unit > 0; ++g) {
    const std::size_t at = g * shape.group;
    const int near = int_code(ideal[g] / unit - 1, 0.5, 0, kMaxScale);
    double best = std::numeric_limits<double>::infinity();
    for (int s = std::max(0, near - 1); s <= std::min(kMaxScale, near + 1); ++s) {
      const double error = take_points(shape, x + at, w + at, unit * (2 * s + 1)).sums.error;
      if (error < best) out.scales[g] = static_cast<std::uint8_t>(s), best = error;
    }
  }
  const Sums sums = take_all(shape, x, w, out);
  if (!(sums.wxg > 0)) return out;
  IQ1Block second = out;
  second.d = f16_nearest(sums.wxg / sums.wgg);
  return take_all(shape, x, w, second).error < sums.error ? second : out;
}

}  // namespace lemma::weights::formats
