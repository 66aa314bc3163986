// SPDX-License-Identifier: Apache-2.0
// Vectors of AVX2 where vpdpbusd is there too: products of bytes by one instruction. `Unit` is that
// instruction: a processor with AVX-512 has it in one encoding, one with AVX-VNNI in another, and
// what it computes is the same.
#pragma once

#include "backend/cpu/kernels/simd_avx2.hpp"

namespace lemma::cpu {
namespace {
namespace avx2 {

/// Like AVX-512 (simd_avx512.hpp), it multiplies unsigned by signed bytes.
template <typename Unit>
struct VnniSimd : Simd {
  static I signed_codes(const std::byte* at) { return as_signed(codes(at)); }
  static Table table(const std::byte* at) { return as_signed(Simd::table(at)); }
  static I as_signed(I x) { return _mm256_xor_si256(x, _mm256_set1_epi8(-128)); }

  static constexpr int kSignedOffset = 128;
  static constexpr bool kDotsAreOne = true, kWideBytes = true;
  static I dot_unsigned(I sum, I w, I a) { return Unit::dot(sum, w, a); }
  static I dot_signed(I sum, I w, I a) { return Unit::dot(sum, w, a); }
  static I dot_bytes(I sum, I w, I a) { return Unit::dot(sum, w, a); }
  static void pair_products() = delete;  ///< and not in 16 bits first
};

}  // namespace avx2
}  // namespace
}  // namespace lemma::cpu
