// SPDX-License-Identifier: Apache-2.0
// The activations of feed-forward blocks over runs of elements: a kernel where the instruction set
// has one, else the contract's function. Pure.
#pragma once

#include <cstddef>

#include "algorithm/ffn/dense_mlp.hpp"
#include "backend/cpu/kernels/kernels.hpp"

namespace lemma::cpu {

/// out[i] = activate(gate[i], up[i]) for `n` elements; `up` is null in an ungated block. `out` may
/// be either of them.
void activate(const KernelTable& kernels, const algorithm::ActivationSpec& spec, const float* gate,
              const float* up, std::size_t n, float* out) noexcept;

}  // namespace lemma::cpu
