// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/activation.hpp"

namespace lemma::cpu {

using algorithm::Activation;

void activate(const KernelTable& kernels, const algorithm::ActivationSpec& spec, const float* gate,
              const float* up, std::size_t n, float* out) noexcept {
  switch (spec.kind) {
    case Activation::kSilu:
      if (spec.limit == 0.f) return kernels.silu(gate, up, n, out);
      if (up != nullptr) {
        return kernels.silu_limited(gate, up, n, spec.limit, spec.limit_after, out);
      }
      break;
    case Activation::kGeluTanh:
      return kernels.gelu_tanh(gate, up, n, out);
    case Activation::kSwigluOai:
      return kernels.swiglu_oai(gate, up, n, spec.limit, spec.alpha, out);
    case Activation::kSitu:
      return kernels.situ(gate, up, n, spec.beta, spec.linear_beta, out);
    case Activation::kGeluErf:
      return kernels.gelu_erf(gate, up, n, out);
    case Activation::kRelu:
      return kernels.relu(gate, up, n, out);
    case Activation::kReluSquared:
      return kernels.relu_squared(gate, up, n, out);
  }
  algorithm::activate(spec, {gate, n}, {up, up != nullptr ? n : 0}, {out, n});
}

}  // namespace lemma::cpu
