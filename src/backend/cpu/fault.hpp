// SPDX-License-Identifier: Apache-2.0
// Planted faults: how a test sees that the comparison with the reference finds what it is for. A
// program that is linked with the objects of fault.cpp (every program, where LEMMA_TEST_FAULTS is
// on) makes the cpu backend compute one operation of one layer wrongly, as the environment variable
// LEMMA_FAULT says. All others take fault_none.cpp from the backend's library: they hold nothing of
// it, and refuse to start a backend while the variable is set.
#pragma once

#include <memory>

#include "backend/backend.hpp"

namespace lemma::cpu {

/// The backend as it is or, where faults are linked in, with the one that LEMMA_FAULT names. Throws
/// kUsage for a word that is none, and for any where faults are not linked in.
std::unique_ptr<backend::Backend> with_fault(std::unique_ptr<backend::Backend> backend);

}  // namespace lemma::cpu
