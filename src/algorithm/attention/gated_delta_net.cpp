// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/gated_delta_net.hpp"

#include <cmath>

#include "algorithm/attention/require.hpp"
#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/norm.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "gated delta net";

bool is_eps(float eps) {
  return std::isfinite(eps) && eps >= 0.f;
}

}  // namespace

void GatedDeltaNetSpec::validate() const {
  require(key_heads > 0, kSpec, "key heads", "at least 1", key_heads);
  require(value_heads > 0 && value_heads % key_heads == 0, kSpec, "value heads",
          "a multiple of the key heads", value_heads);
  require(key_dim > 0 && is_row(std::uint64_t(key_heads) * 2, key_dim), kSpec, "key dim",
          "at least 1 and rows below 2^32 elements", key_dim);
  require(
      value_dim > 0 && is_row(value_heads, value_dim) &&
          is_row(std::uint64_t(value_heads) * value_dim, key_dim) &&
          is_row(value_heads, shape().cell_size()) &&
          is_row(2 * std::uint64_t(key_heads) * key_dim + std::uint64_t(value_heads) * value_dim,
                 1),
      kSpec, "value dim", "at least 1 and a state below 2^32 elements", value_dim);
  require(is_eps(l2_eps), kSpec, "l2 eps", "a finite number >= 0", l2_eps);
  require(is_eps(norm_eps), kSpec, "norm eps", "a finite number >= 0", norm_eps);
  convolution().validate();
}

Slots GatedDeltaNetSpec::slots(DeltaForm form) const {
  return recurrent_slots(shape(), value_heads, convolution(), form);
}

bool gated_delta_net(const GatedDeltaNetSpec& spec, const GatedDeltaNetWeights& weights,
                     std::uint32_t position, const GatedDeltaNetRow& row, RecurrentState& state,
                     std::span<float> scratch, std::span<float> out) noexcept {
  const std::size_t heads = spec.value_heads, width = spec.value_dim, n = spec.key_dim;
  const std::size_t keys = std::size_t(spec.key_heads) * n;
  LEMMA_CHECK(out.size() == heads * width && scratch.size() == spec.channels());
  LEMMA_CHECK(row.alpha.size() == heads && row.beta.size() == heads);
  LEMMA_CHECK(weights.rate.size() == heads && weights.dt_bias.size() == heads);
  if (!admit(state, position)) return false;

  convolve(spec.convolution(), weights.convolution, row.qkv, state.history, scratch);
  const float scale = 1.f / std::sqrt(float(n));
  for (std::size_t begin = 0; begin < 2 * keys; begin += n) {
    const std::span<float> head = scratch.subspan(begin, n);
    l2_normalize(head, spec.l2_eps, head);
    if (begin >= keys) continue;
    for (float& value : head) value *= scale;
  }
  for (std::size_t h = 0; h < heads; ++h) {
    const std::size_t key_head = spec.key_head(std::uint32_t(h));
    const float decay = log_decay(weights.rate[h], row.alpha[h] + weights.dt_bias[h]);
    const DeltaToken token{.query = scratch.subspan(key_head * n, n),
                           .key = scratch.subspan(keys + key_head * n, n),
                           .value = scratch.subspan(2 * keys + h * width, width),
                           .log_decay = {&decay, 1},
                           .beta = sigmoid(row.beta[h])};
    delta_rule(spec.shape(), h, position, token, state, out.subspan(h * width, width));
  }
  gated_norm(OutputGate::kSilu, spec.norm_eps, weights.norm, row.gate, out);
  return true;
}

}  // namespace lemma::algorithm
