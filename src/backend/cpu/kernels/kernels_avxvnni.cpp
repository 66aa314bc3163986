// SPDX-License-Identifier: Apache-2.0
// Products of quantized weights for AVX2 with AVX-VNNI, beside the other kernels of AVX2: the same
// bits by fewer instructions.
#include "backend/cpu/kernels/make_table.hpp"
#include "backend/cpu/kernels/simd_vnni_avx2.hpp"

namespace lemma::cpu {
namespace {

struct Unit {
  static __m256i dot(__m256i sum, __m256i w, __m256i a) {
    return _mm256_dpbusd_avx_epi32(sum, w, a);
  }
};

}  // namespace

constinit const Int8Kernels kAvxVnniKernels = int8_kernels<avx2::VnniSimd<Unit>>("avxvnni");

}  // namespace lemma::cpu
