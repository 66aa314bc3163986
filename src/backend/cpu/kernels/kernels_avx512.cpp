// SPDX-License-Identifier: Apache-2.0
// Kernels for AVX-512 with F, BW, VL, DQ and VNNI.
#include "backend/cpu/kernels/make_table.hpp"
#include "backend/cpu/kernels/simd_avx512.hpp"

namespace lemma::cpu {

constinit const KernelTable kAvx512Kernels = make_table<avx512::Simd>("avx512");

}  // namespace lemma::cpu
