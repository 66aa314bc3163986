// SPDX-License-Identifier: Apache-2.0
// LEMMA_UNROLL: asks the compiler to unroll the next loop, of a constant number of steps, in full.
// A tile's sums live in registers only if every index into them is a constant. Vectors of one lane
// (LEMMA_ROLLED) would have sixteen sums for every one of AVX-512, so there loops stay loops.
#pragma once

#if defined(LEMMA_ROLLED)
#define LEMMA_UNROLL
#elif defined(__clang__)
#define LEMMA_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LEMMA_UNROLL _Pragma("GCC unroll 16")
#endif
