// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/allocation_count.hpp"

#include <cstdlib>
#include <new>

namespace lemma::cpu {

std::atomic<bool> counting_allocations{false};
std::atomic<std::size_t> counted_allocations{0};

}  // namespace lemma::cpu

void* operator new(std::size_t bytes) {
  if (lemma::cpu::counting_allocations.load(std::memory_order_relaxed)) {
    lemma::cpu::counted_allocations.fetch_add(1, std::memory_order_relaxed);
  }
  if (void* const memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
