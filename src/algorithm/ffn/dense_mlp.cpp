// SPDX-License-Identifier: Apache-2.0
#include "algorithm/ffn/dense_mlp.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::algorithm {
namespace {

float gelu_tanh(float g) noexcept {
  constexpr float kRootTwoOverPi = 0.7978845608f;
  return 0.5f * g * (1.f + std::tanh(kRootTwoOverPi * (g + 0.044715f * g * g * g)));
}

float gelu_erf(float g) noexcept {
  constexpr float kRootHalf = 0.70710678f;
  return 0.5f * g * (1.f + std::erf(g * kRootHalf));
}

/// Rejects NaN too: the comparison is written so that it must hold, not so that it must not fail.
void require(bool holds, const char* field, const char* expected, float found) {
  if (!holds) {
    base::raise(ErrorKind::kUnsupported, "activation {}: expected {}, found {}", field, expected,
                found);
  }
}

}  // namespace

void ActivationSpec::validate() const {
  if (limit_after && !(kind == Activation::kSilu && limit > 0.f)) {
    base::raise(ErrorKind::kUnsupported,
                "activation limit_after: expected SiLU with a limit above 0, found limit {}",
                limit);
  }
  switch (kind) {
    case Activation::kSilu:
      require(limit >= 0.f, "limit", "a number >= 0", limit);
      break;
    case Activation::kSwigluOai:
      require(limit > 0.f, "limit", "a number > 0", limit);
      require(alpha > 0.f && std::isfinite(alpha), "alpha", "a finite number > 0", alpha);
      break;
    case Activation::kSitu:
      require(beta > 0.f && std::isfinite(beta), "beta", "a finite number > 0", beta);
      require(linear_beta >= 0.f && std::isfinite(linear_beta), "linear_beta",
              "a finite number >= 0", linear_beta);
      break;
    case Activation::kGeluTanh:
    case Activation::kGeluErf:
    case Activation::kRelu:
    case Activation::kReluSquared:
      break;
  }
}

void MlpSpec::validate() const {
  activation.validate();
  const bool needs_gate =
      activation.kind == Activation::kSwigluOai || activation.kind == Activation::kSitu;
  if (needs_gate && !gated) {
    base::raise(ErrorKind::kUnsupported,
                "feed-forward: this activation is defined with a gate, but the block has none");
  }
  if (width == 0 || hidden == 0) {
    base::raise(ErrorKind::kUnsupported,
                "feed-forward: width and hidden must be positive, found {} and {}", width, hidden);
  }
}

float sigmoid(float x) noexcept {
  if (x >= 0.f) return 1.f / (1.f + std::exp(-x));
  const float e = std::exp(x);
  return e / (1.f + e);
}

float softplus(float x) noexcept {
  return x > 0.f ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

float activate(const ActivationSpec& spec, float g, float u) noexcept {
  switch (spec.kind) {
    case Activation::kSilu:
      if (spec.limit > 0.f) {
        u = std::clamp(u, -spec.limit, spec.limit);
        if (spec.limit_after) return std::min(g * sigmoid(g), spec.limit) * u;
        g = std::min(g, spec.limit);
      }
      return g * sigmoid(g) * u;
    case Activation::kGeluTanh:
      return gelu_tanh(g) * u;
    case Activation::kGeluErf:
      return gelu_erf(g) * u;
    case Activation::kRelu:
      return (g < 0.f ? 0.f : g) * u;
    case Activation::kReluSquared:
      return (g < 0.f ? 0.f : g * g) * u;
    case Activation::kSwigluOai: {
      const float gate = std::min(g, spec.limit);
      const float up = std::clamp(u, -spec.limit, spec.limit);
      return gate * sigmoid(spec.alpha * gate) * (up + 1.f);
    }
    case Activation::kSitu: {
      const float up =
          spec.linear_beta > 0.f ? spec.linear_beta * std::tanh(u / spec.linear_beta) : u;
      return spec.beta * std::tanh(g / spec.beta) * sigmoid(g) * up;
    }
  }
  return 0.f;
}

void activate(const ActivationSpec& spec, std::span<const float> gate, std::span<const float> up,
              std::span<float> out) noexcept {
  LEMMA_CHECK(out.size() == gate.size());
  LEMMA_CHECK(up.empty() || up.size() == gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    out[i] = activate(spec, gate[i], up.empty() ? 1.f : up[i]);
  }
}

}  // namespace lemma::algorithm
