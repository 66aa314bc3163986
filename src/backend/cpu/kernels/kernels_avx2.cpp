// SPDX-License-Identifier: Apache-2.0
// Kernels for AVX2 with FMA and F16C.
#include "backend/cpu/kernels/make_table.hpp"
#include "backend/cpu/kernels/simd_avx2.hpp"

namespace lemma::cpu {

constinit const KernelTable kAvx2Kernels = make_table<avx2::Simd>("avx2");

}  // namespace lemma::cpu
