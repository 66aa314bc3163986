// SPDX-License-Identifier: Apache-2.0
// What the units that multiply can do at most, for the ratios of kernels_bench: chains of
// multiply-adds on registers, enough of them to hide their latency.
#pragma once

#include <cstddef>

#include "base/cpu_features.hpp"

namespace lemma::cpu {

/// Runs `steps` steps and returns the multiply-adds done; 0 where this instruction set has no such
/// unit here.
std::size_t run_f32_limit(base::Isa isa, std::size_t steps);
std::size_t run_int16_limit(base::Isa isa, std::size_t steps);
std::size_t run_int8_limit(base::Isa isa, std::size_t steps);

}  // namespace lemma::cpu
