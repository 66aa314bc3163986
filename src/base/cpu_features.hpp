// SPDX-License-Identifier: Apache-2.0
// Instruction sets: what the processor and the operating system together allow at run time, and
// which level of kernels to use. The environment variable
// LEMMA_ISA=scalar|avx2|avxvnni|avx512|amxint8|amx|neon sets it, so that every path can be tested
// on one machine. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lemma::base {

/// Levels of kernels. Each is one translation unit per kernel file.
enum class Isa {
  kScalar,
  kAvx2,     ///< AVX2, FMA, F16C
  kAvxVnni,  ///< the above, and products of int8 by VNNI
  kAvx512,   ///< kAvx2 and AVX-512 F, BW, VL, DQ, VNNI
  kAmxInt8,  ///< kAvx512 and VBMI, and products of int8 on AMX tiles
  kAmx,      ///< kAvx512, and entered rows of all but F32 on AMX tiles of bf16
  kNeon,     ///< AArch64 Advanced SIMD, with dot product and FP16 arithmetic
};

/// "scalar", "avx2", "avxvnni", "avx512", "amxint8", "amx", "neon".
std::string_view to_string(Isa isa) noexcept;

/// What may be executed: the processor has it and the system saves its registers.
struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false, avx_vnni = false;
  bool avx512f = false, avx512bw = false, avx512vl = false, avx512dq = false;
  bool avx512vnni = false, avx512vbmi = false, avx512bf16 = false;
  bool amx_tile = false, amx_int8 = false, amx_bf16 = false;
  bool neon = false, neon_dotprod = false, neon_fp16 = false, neon_i8mm = false;
};

/// The features of this machine, detected once. Asks Linux for the use of AMX tiles on the way;
/// threads started later inherit the permission.
const CpuFeatures& cpu_features() noexcept;

/// The levels that `features` allow, from kScalar upwards; never empty.
std::vector<Isa> available_isas(const CpuFeatures& features);

/// The level called `cap`, or where that is empty the highest available but kAmxInt8 and kAmx,
/// which have to be asked for: nobody has run their tests on such a processor yet (LEMMA_TEST_AMX=1
/// runs them). Throws kUsage, listing the available levels, if `cap` is unknown or not available.
Isa choose_isa(const CpuFeatures& features, std::string_view cap);

/// The levels that tests run on this machine: all that are available, but kAmxInt8 and kAmx only if
/// the environment variable LEMMA_TEST_AMX is 1.
std::vector<Isa> tested_isas();

/// choose_isa for this machine and the environment variable LEMMA_ISA.
Isa best_isa();

/// The detected features in words, for reports: "avx2 fma f16c avx512f ...".
std::string describe(const CpuFeatures& features);

}  // namespace lemma::base
