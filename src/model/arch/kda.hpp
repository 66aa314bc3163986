// SPDX-License-Identifier: Apache-2.0
// Kimi delta attention as GGUF keys and tensors describe it, for the families that have it.
#pragma once

#include <cstdint>

#include "model/arch/arch.hpp"

namespace lemma::model::arch {

/// The keys kda.head_dim, ssm.conv_kernel and, where the decay has one, kda.gate_lower_bound, with
/// the heads of `layer`.
algorithm::KdaSpec kda_spec(const Reader& reader, std::uint32_t layer);

/// attn_q/k/v with their convolutions ssm_conv1d_*, the decay ssm_f and the gate ssm_g (each whole
/// as ..._a, or through a bottleneck ..._a and ..._b), ssm_beta, ssm_a, ssm_dt, ssm_norm,
/// attn_output.
Kda kimi_delta(const Reader& reader, std::uint32_t layer, const algorithm::KdaSpec& spec);

}  // namespace lemma::model::arch
