// SPDX-License-Identifier: Apache-2.0
// GuardedMemory, for kernel tests: an array between two pages that may not be touched. It either
// ends right before the upper one, so that reading one byte too much ends the test, or begins at
// any offset from its start, so that every misalignment is tried.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace lemma::cpu {

template <typename T>
class GuardedMemory {
 public:
  /// `count` elements that end `shift` bytes before the guard page; zero at first.
  explicit GuardedMemory(std::size_t count, std::size_t shift = 0) : count_(count) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inner = (count * sizeof(T) + shift + page - 1) / page * page;
    size_ = inner + 2 * page;
    base_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    auto* const bytes = static_cast<std::byte*>(base_);
    mprotect(bytes, page, PROT_NONE);
    mprotect(bytes + page + inner, page, PROT_NONE);
    data_ = reinterpret_cast<T*>(bytes + page + inner - shift - count * sizeof(T));
  }
  ~GuardedMemory() { munmap(base_, size_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  T* data() noexcept { return data_; }
  std::size_t size() const noexcept { return count_; }
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + count_; }

 private:
  void* base_ = nullptr;
  std::size_t size_ = 0, count_ = 0;
  T* data_ = nullptr;
};

}  // namespace lemma::cpu
