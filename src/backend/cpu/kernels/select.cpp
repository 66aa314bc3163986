// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/kernels/select.hpp"

#include "base/check.hpp"

namespace lemma::cpu {

KernelTable with_entered(const KernelTable& below, const EnteredKernels& entered) noexcept {
  KernelTable table = below;
  table.name = entered.name;
  for (std::size_t kernel = 0; kernel < kWeightKernels; ++kernel) {
    if (entered.project[kernel] != nullptr) table.project[kernel][0] = entered.project[kernel];
  }
  table.bf16_rows = entered.quantize != nullptr;
  if (table.bf16_rows) table.quantize = entered.quantize;
  return table;
}

const KernelTable& kernels(base::Isa isa) noexcept {
  switch (isa) {
    case base::Isa::kScalar:
      return kScalarKernels;
#if defined(__x86_64__)
    case base::Isa::kAvx2:
      return kAvx2Kernels;
    case base::Isa::kAvx512:
      return kAvx512Kernels;
    case base::Isa::kAvx512Bf16: {
      static const KernelTable table = with_entered(kAvx512Kernels, kAvx512Bf16Kernels);
      return table;
    }
    case base::Isa::kAmx: {
      static const KernelTable table = with_entered(kAvx512Kernels, kAmxKernels);
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
  const bool adds = isa == base::Isa::kAvx512Bf16 || isa == base::Isa::kAmx;
  return kernels(adds ? base::Isa::kAvx512 : isa);
}

}  // namespace lemma::cpu
