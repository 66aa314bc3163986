// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/kernels/select.hpp"

#include "base/check.hpp"

namespace lemma::cpu {

const KernelTable& kernels(base::Isa isa) noexcept {
  switch (isa) {
    case base::Isa::kScalar:
      return kScalarKernels;
#if defined(__x86_64__)
    case base::Isa::kAvx2:
      return kAvx2Kernels;
    case base::Isa::kAvx512:
      return kAvx512Kernels;
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

}  // namespace lemma::cpu
