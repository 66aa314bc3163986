// SPDX-License-Identifier: Apache-2.0
#include "algorithm/attention/kda.hpp"

#include <cmath>

#include "algorithm/attention/require.hpp"
#include "algorithm/ffn/dense_mlp.hpp"
#include "algorithm/norm.hpp"
#include "base/check.hpp"

namespace lemma::algorithm {
namespace {

constexpr std::string_view kSpec = "kda";

bool is_eps(float eps) {
  return std::isfinite(eps) && eps >= 0.f;
}

}  // namespace

void KdaSpec::validate() const {
  require(heads > 0, kSpec, "heads", "at least 1", heads);
  require(dim > 0 && is_row(std::uint64_t(heads) * 3, dim) &&
              is_row(std::uint64_t(heads) * dim, dim) && is_row(heads, shape().cell_size()),
          kSpec, "dim", "at least 1 and a state below 2^32 elements", dim);
  require(std::isfinite(lower_bound) && lower_bound <= 0.f, kSpec, "lower bound",
          "a finite number below 0, or 0 for none", lower_bound);
  require(is_eps(l2_eps), kSpec, "l2 eps", "a finite number >= 0", l2_eps);
  require(is_eps(norm_eps), kSpec, "norm eps", "a finite number >= 0", norm_eps);
  convolution().validate();
}

Slots KdaSpec::slots(DeltaForm form) const {
  return recurrent_slots(shape(), heads, convolution(), form);
}

float kda_log_decay(const KdaSpec& spec, float rate, float raw, float dt_bias) noexcept {
  const float biased = raw + dt_bias;
  return spec.lower_bound < 0.f ? bounded_log_decay(rate, biased, spec.lower_bound)
                                : log_decay(rate, biased);
}

bool kda(const KdaSpec& spec, const KdaWeights& weights, std::uint32_t position, const KdaRow& row,
         RecurrentState& state, std::span<float> scratch, std::span<float> out) noexcept {
  const std::size_t n = spec.dim, width = std::size_t(spec.heads) * n;
  LEMMA_CHECK(out.size() == width && scratch.size() == spec.scratch_size());
  LEMMA_CHECK(row.forget.size() == width && row.beta.size() == spec.heads);
  LEMMA_CHECK(weights.rate.size() == spec.heads && weights.dt_bias.size() == width);
  if (!admit(state, position)) return false;

  const std::span<float> qkv = scratch.first(spec.channels()), decay = scratch.last(n);
  convolve(spec.convolution(), weights.convolution, row.qkv, state.history, qkv);
  const float scale = 1.f / std::sqrt(float(n));
  for (std::size_t begin = 0; begin < 2 * width; begin += n) {
    const std::span<float> head = qkv.subspan(begin, n);
    if (spec.normalize_keys) l2_normalize(head, spec.l2_eps, head);
    if (begin >= width) continue;
    for (float& value : head) value *= scale;
  }
  for (std::size_t h = 0; h < spec.heads; ++h) {
    const std::size_t begin = h * n;
    for (std::size_t c = 0; c < n; ++c) {
      decay[c] =
          kda_log_decay(spec, weights.rate[h], row.forget[begin + c], weights.dt_bias[begin + c]);
    }
    const DeltaToken token{.query = qkv.subspan(begin, n),
                           .key = qkv.subspan(width + begin, n),
                           .value = qkv.subspan(2 * width + begin, n),
                           .log_decay = decay,
                           .beta = sigmoid(row.beta[h])};
    delta_rule(spec.shape(), h, position, token, state, out.subspan(begin, n));
  }
  gated_norm(OutputGate::kSigmoid, spec.norm_eps, weights.norm, row.gate, out);
  return true;
}

}  // namespace lemma::algorithm
