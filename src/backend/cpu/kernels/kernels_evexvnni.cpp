// SPDX-License-Identifier: Apache-2.0
// For tests: what kernels_avxvnni.cpp compiles, with the instruction in the encoding of AVX-512.
// More processors have that one, so everything but the encoding is tested on them.
#include "backend/cpu/kernels/make_table.hpp"
#include "backend/cpu/kernels/simd_vnni_avx2.hpp"

namespace lemma::cpu {
namespace {

struct Unit {
  static __m256i dot(__m256i sum, __m256i w, __m256i a) { return _mm256_dpbusd_epi32(sum, w, a); }
};

}  // namespace

constinit const Int8Kernels kEvexVnniKernels = int8_kernels<avx2::VnniSimd<Unit>>("evexvnni");

}  // namespace lemma::cpu
