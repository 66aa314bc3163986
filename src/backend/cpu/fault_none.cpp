// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "backend/cpu/fault.hpp"
#include "base/raise.hpp"

namespace lemma::cpu {

std::unique_ptr<backend::Backend> with_fault(std::unique_ptr<backend::Backend> backend) {
  if (const char* const name = std::getenv("LEMMA_FAULT"))
    base::raise(ErrorKind::kUsage,
                "LEMMA_FAULT is set to '{}', but this program was not built with "
                "-DLEMMA_TEST_FAULTS=ON: unset it",
                name);
  return backend;
}

}  // namespace lemma::cpu
