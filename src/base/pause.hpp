// SPDX-License-Identifier: Apache-2.0
// pause: what a thread does between two looks at a value that another one is about to change. It
// leaves the core's resources to its other hardware thread and costs some tens of nanoseconds.
#pragma once

#include <thread>

namespace lemma::base {

#if defined(__x86_64__)
inline void pause() noexcept {
  __builtin_ia32_pause();
}
#elif defined(__aarch64__)
inline void pause() noexcept {
  asm volatile("isb" ::: "memory");
}
#else
inline void pause() noexcept {
  std::this_thread::yield();
}
#endif

}  // namespace lemma::base
