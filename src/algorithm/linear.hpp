// SPDX-License-Identifier: Apache-2.0
// The linear map, the soft-cap and sums: the plainest operations, written once. Every output
// element is its own sum in ascending index order, whatever else is computed beside it.
#pragma once

#include <cstddef>
#include <span>

namespace lemma::algorithm {

/// y[t] = w . x[t] for `rows` input rows of `w.size()` elements, each `x_stride` floats apart;
/// y[t] is written `y_stride` floats apart. One weight row against many inputs, so that a decoded
/// weight row is used while it is hot; each y is the plain ascending f32 sum.
void dot_rows(std::span<const float> w, const float* x, std::size_t x_stride, std::size_t rows,
              float* y, std::size_t y_stride) noexcept;

/// c * tanh(x / c); the identity for c == 0. Finite for every finite x; -inf stays -inf.
float softcap(float x, float c) noexcept;

/// x clipped to [-c, c]; the identity for c == 0.
float clamp(float x, float c) noexcept;

}  // namespace lemma::algorithm
