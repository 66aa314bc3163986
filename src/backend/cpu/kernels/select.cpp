// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/kernels/select.hpp"

#include <algorithm>
#include <iterator>

#include "backend/cpu/kernels/attention_whole.hpp"
#include "base/check.hpp"

namespace lemma::cpu {
#if defined(__x86_64__)
namespace {

/// AVX-512 with one arithmetic for all rows; with the lookups of VBMI where they are there, on
/// which no bits depend.
const KernelTable& exact_avx512() noexcept {
  static const KernelTable table = [] {
    KernelTable all = kAvx512Kernels;
    if (!base::cpu_features().avx512vbmi) return all;
    for (std::size_t kernel = 0; kernel < kWeightKernels; ++kernel) {
      const auto& faster = kAvx512VbmiKernels.project[kernel];
      if (faster[0] == nullptr) continue;
      std::copy(std::begin(faster), std::end(faster), all.project[kernel]);
      all.expand[kernel] = kAvx512VbmiKernels.expand[kernel];
    }
    return all;
  }();
  return table;
}

/// The same, and entered rows in whole numbers.
const KernelTable& avx512() noexcept {
  static const KernelTable table = [] {
    KernelTable all = with_entered(exact_avx512(), kAvx512WholeKernels);
    all.whole_attention = &kAvx512WholeAttention;
    return all;
  }();
  return table;
}

}  // namespace
#endif

KernelTable with_entered(const KernelTable& below, const EnteredKernels& entered) noexcept {
  KernelTable table = below;
  table.name = entered.name;
  for (std::size_t kernel = 0; kernel < kWeightKernels; ++kernel) {
    if (entered.project[kernel] == nullptr) continue;
    table.project[kernel][0] = entered.project[kernel];
    table.entered[kernel] =
        entered.round_whole != nullptr ? EnteredRows::kWhole : EnteredRows::kBf16;
  }
  table.bf16_rows = entered.quantize != nullptr;
  if (table.bf16_rows) table.quantize = entered.quantize;
  if (entered.round_whole != nullptr) table.round_whole = entered.round_whole;
  return table;
}

KernelTable with_int8(const KernelTable& below, const Int8Kernels& kernels) noexcept {
  KernelTable table = below;
  table.name = kernels.name;
  for (std::size_t kernel = 0; kernel < kWeightKernels; ++kernel) {
    if (kernels.project[kernel] == nullptr) continue;
    for (auto& project : table.project[kernel]) project = kernels.project[kernel];
  }
  return table;
}

const KernelTable& kernels(base::Isa isa) noexcept {
  switch (isa) {
    case base::Isa::kScalar:
      return kScalarKernels;
#if defined(__x86_64__)
    case base::Isa::kAvx2:
      return kAvx2Kernels;
    case base::Isa::kAvxVnni: {
      static const KernelTable table = with_int8(kAvx2Kernels, kAvxVnniKernels);
      return table;
    }
    case base::Isa::kAvx512:
      return avx512();
    case base::Isa::kAmxInt8: {
      static const KernelTable table = with_int8(avx512(), kAmxInt8Kernels);
      return table;
    }
    case base::Isa::kAmx: {
      static const KernelTable table = with_entered(avx512(), kAmxKernels);
      return table;
    }
#elif defined(__aarch64__)
    case base::Isa::kNeon:
      return kNeonKernels;
#endif
    default:
      break;
  }
  constexpr bool kOfThisArchitecture = false;
  LEMMA_CHECK(kOfThisArchitecture);
  return kScalarKernels;
}

const KernelTable& strict_kernels(base::Isa isa) noexcept {
  const KernelTable& all = kernels(isa);
  if (all.whole_attention == nullptr) return all;
#if defined(__x86_64__)
  return exact_avx512();
#else
  return all;
#endif
}

}  // namespace lemma::cpu
