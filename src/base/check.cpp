// SPDX-License-Identifier: Apache-2.0
#include "base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace lemma::base {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "lemma: internal check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace lemma::base
