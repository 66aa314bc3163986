// SPDX-License-Identifier: Apache-2.0
// LEMMA_CHECK: a condition that only a fault in lemma itself can break. It ends the process with
// file, line and condition. No byte from outside may reach one; those paths throw lemma::Error.
#pragma once

namespace lemma::base {
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;
}  // namespace lemma::base

#define LEMMA_CHECK(condition) \
  ((condition) ? void(0) : ::lemma::base::check_failed(#condition, __FILE__, __LINE__))
