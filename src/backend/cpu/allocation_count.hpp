// SPDX-License-Identifier: Apache-2.0
// Counts calls of the global operator new while counting is on, for a test that a step allocates
// nothing. Linked into that test program only, where allocation_count.cpp replaces the operator.
#pragma once

#include <atomic>
#include <cstddef>

namespace lemma::cpu {

extern std::atomic<bool> counting_allocations;
extern std::atomic<std::size_t> counted_allocations;

}  // namespace lemma::cpu
