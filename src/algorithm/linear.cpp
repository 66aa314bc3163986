// SPDX-License-Identifier: Apache-2.0
#include "algorithm/linear.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lemma::algorithm {
namespace {

/// Rows that are summed side by side. One sum is a chain of additions, each waiting some four
/// cycles for the last; eight independent chains keep two adders busy and still fit the sixteen
/// registers of the smallest instruction set.
constexpr std::size_t kBlock = 8;

void dot_block(std::span<const float> w, const float* x, std::size_t x_stride, float* y,
               std::size_t y_stride) noexcept {
  const float* const x0 = x;
  const float* const x1 = x0 + x_stride;
  const float* const x2 = x1 + x_stride;
  const float* const x3 = x2 + x_stride;
  const float* const x4 = x3 + x_stride;
  const float* const x5 = x4 + x_stride;
  const float* const x6 = x5 + x_stride;
  const float* const x7 = x6 + x_stride;
  float s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
  for (std::size_t k = 0; k < w.size(); ++k) {
    const float a = w[k];
    s0 += a * x0[k];
    s1 += a * x1[k];
    s2 += a * x2[k];
    s3 += a * x3[k];
    s4 += a * x4[k];
    s5 += a * x5[k];
    s6 += a * x6[k];
    s7 += a * x7[k];
  }
  const float sums[kBlock] = {s0, s1, s2, s3, s4, s5, s6, s7};
  for (std::size_t t = 0; t < kBlock; ++t) y[t * y_stride] = sums[t];
}

}  // namespace

void dot_rows(std::span<const float> w, const float* x, std::size_t x_stride, std::size_t rows,
              float* y, std::size_t y_stride) noexcept {
  std::size_t t = 0;
  for (; t + kBlock <= rows; t += kBlock) {
    dot_block(w, x + t * x_stride, x_stride, y + t * y_stride, y_stride);
  }
  for (; t < rows; ++t) {
    const float* const row = x + t * x_stride;
    float sum = 0.f;
    for (std::size_t k = 0; k < w.size(); ++k) sum += w[k] * row[k];
    y[t * y_stride] = sum;
  }
}

float softcap(float x, float c) noexcept {
  if (c == 0.f || x == -std::numeric_limits<float>::infinity()) return x;
  return c * std::tanh(x / c);
}

float clamp(float x, float c) noexcept {
  return c == 0.f ? x : std::clamp(x, -c, c);
}

}  // namespace lemma::algorithm
