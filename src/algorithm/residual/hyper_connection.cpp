// SPDX-License-Identifier: Apache-2.0
#include "algorithm/residual/hyper_connection.hpp"

#include <algorithm>
#include <cmath>

#include "algorithm/attention/require.hpp"
#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/linear.hpp"
#include "algorithm/norm.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "hyper-connection";

/// Divides `n` entries, `stride` apart, by their sum plus eps.
void divide_by_sum(float* entries, std::size_t n, std::size_t stride, float eps) noexcept {
  float sum = 0.f;
  for (std::size_t i = 0; i < n; ++i) sum += entries[i * stride];
  sum += eps;
  for (std::size_t i = 0; i < n; ++i) entries[i * stride] /= sum;
}

void softmax_row(float* row, std::size_t n, float eps) noexcept {
  float largest = row[0];
  for (std::size_t k = 1; k < n; ++k) largest = std::max(largest, row[k]);
  float mass = 0.f;
  for (std::size_t k = 0; k < n; ++k) {
    row[k] = std::exp(row[k] - largest);
    mass += row[k];
  }
  for (std::size_t k = 0; k < n; ++k) row[k] = row[k] / mass + eps;
}

/// The state, of all streams at once, divided by its root mean square.
void flatten(const HyperConnectionSpec& spec, std::span<const float> state,
             std::span<float> flat) noexcept {
  normalize({.kind = NormKind::kRms, .eps = spec.norm_eps}, state, {}, {}, flat);
}

}  // namespace

void HyperConnectionSpec::validate() const {
  // A matrix has streams^2 entries for every row of a step; no model has more than a few.
  constexpr std::uint32_t kMostStreams = 64;
  require(streams > 0 && streams <= kMostStreams, kSpec, "streams", "1 to 64", streams);
  require(width > 0 && is_row(streams, width), kSpec, "width",
          "at least 1 and a state below 2^32 elements", width);
  require(iterations > 0, kSpec, "iterations", "at least 1", iterations);
  require(is_positive(eps), kSpec, "eps", "a finite number > 0", eps);
  require(std::isfinite(norm_eps) && norm_eps >= 0.f, kSpec, "norm eps", "a finite number >= 0",
          norm_eps);
}

void hyper_enter(const HyperConnectionSpec& spec, std::span<const float> embedding,
                 std::span<float> state) noexcept {
  LEMMA_CHECK(embedding.size() == spec.width && state.size() == spec.state_size());
  for (std::size_t i = 0; i < spec.streams; ++i) {
    std::copy(embedding.begin(), embedding.end(), state.begin() + std::ptrdiff_t(i * spec.width));
  }
}

void hyper_coefficients(const HyperConnectionSpec& spec, const HyperConnectionWeights& weights,
                        std::span<const float> state, std::span<float> scratch,
                        std::span<float> out) noexcept {
  const std::size_t n = spec.state_size();
  LEMMA_CHECK(state.size() == n && scratch.size() == n && out.size() == spec.coefficients());
  LEMMA_CHECK(weights.fn.size() == spec.coefficients() * n);
  flatten(spec, state, scratch);
  for (std::size_t i = 0; i < out.size(); ++i) {
    dot_rows(weights.fn.subspan(i * n, n), scratch.data(), n, 1, &out[i], 1);
  }
  hyper_split(spec, weights.base, weights.scale, out);
}

void hyper_split(const HyperConnectionSpec& spec, std::span<const float> base,
                 std::span<const float> scale, std::span<float> mix) noexcept {
  const std::size_t streams = spec.streams;
  LEMMA_CHECK(mix.size() == spec.coefficients() && base.size() == mix.size() && scale.size() == 3);
  for (std::size_t i = 0; i < mix.size(); ++i) {
    mix[i] = mix[i] * scale[std::min<std::size_t>(i / streams, 2)] + base[i];
  }
  for (std::size_t i = 0; i < streams; ++i) mix[i] = sigmoid(mix[i]) + spec.eps;
  for (std::size_t i = streams; i < 2 * streams; ++i) mix[i] = 2.f * sigmoid(mix[i]);
  sinkhorn(spec, mix.subspan(2 * streams));
}

void sinkhorn(const HyperConnectionSpec& spec, std::span<float> matrix) noexcept {
  const std::size_t n = spec.streams;
  LEMMA_CHECK(matrix.size() == n * n);
  for (std::size_t j = 0; j < n; ++j) softmax_row(&matrix[j * n], n, spec.eps);
  for (std::uint32_t iteration = 0; iteration < spec.iterations; ++iteration) {
    if (iteration > 0) {
      for (std::size_t j = 0; j < n; ++j) divide_by_sum(&matrix[j * n], n, 1, spec.eps);
    }
    for (std::size_t k = 0; k < n; ++k) divide_by_sum(&matrix[k], n, n, spec.eps);
  }
}

void hyper_reduce(const HyperConnectionSpec& spec, const HyperCoefficients& coefficients,
                  std::span<const float> state, std::span<float> out) noexcept {
  LEMMA_CHECK(state.size() == spec.state_size() && out.size() == spec.width);
  for (std::size_t d = 0; d < spec.width; ++d) {
    float sum = 0.f;
    for (std::size_t i = 0; i < spec.streams; ++i) {
      sum += coefficients.pre[i] * state[i * spec.width + d];
    }
    out[d] = sum;
  }
}

void hyper_merge(const HyperConnectionSpec& spec, const HyperCoefficients& coefficients,
                 std::span<const float> state, std::span<const float> y,
                 std::span<float> out) noexcept {
  LEMMA_CHECK(state.size() == spec.state_size() && out.size() == state.size());
  LEMMA_CHECK(y.size() == spec.width && out.data() != state.data());
  for (std::size_t k = 0; k < spec.streams; ++k) {
    for (std::size_t d = 0; d < spec.width; ++d) {
      float sum = coefficients.post[k] * y[d];
      for (std::size_t j = 0; j < spec.streams; ++j) {
        sum += coefficients.matrix[j * spec.streams + k] * state[j * spec.width + d];
      }
      out[k * spec.width + d] = sum;
    }
  }
}

void hyper_exit(const HyperConnectionSpec& spec, std::span<const float> fn,
                std::span<const float> base, float scale, std::span<const float> state,
                std::span<float> scratch, std::span<float> out) noexcept {
  const std::size_t n = spec.state_size();
  LEMMA_CHECK(state.size() == n && scratch.size() == n && out.size() == spec.width);
  LEMMA_CHECK(fn.size() == spec.streams * n && base.size() == spec.streams);
  flatten(spec, state, scratch);
  std::fill(out.begin(), out.end(), 0.f);
  for (std::size_t i = 0; i < spec.streams; ++i) {
    float mix = 0.f;
    dot_rows(fn.subspan(i * n, n), scratch.data(), n, 1, &mix, 1);
    const float weight = sigmoid(mix * scale + base[i]) + spec.eps;
    for (std::size_t d = 0; d < spec.width; ++d) out[d] += weight * state[i * spec.width + d];
  }
}

void hyper_exit_mean(const HyperConnectionSpec& spec, std::span<const float> state,
                     std::span<float> out) noexcept {
  LEMMA_CHECK(state.size() == spec.state_size() && out.size() == spec.width);
  for (std::size_t d = 0; d < spec.width; ++d) {
    float sum = 0.f;
    for (std::size_t i = 0; i < spec.streams; ++i) sum += state[i * spec.width + d];
    out[d] = sum / float(spec.streams);
  }
}

}  // namespace lemma::algorithm
