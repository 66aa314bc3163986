// SPDX-License-Identifier: Apache-2.0
// raise(kind, format, arguments...): throws lemma::Error with a formatted message. The message
// names what is wrong, what was expected and what was found. See include/lemma/error.hpp.
#pragma once

#include <fmt/format.h>

#include "lemma/error.hpp"

namespace lemma::base {

template <typename... Args>
[[noreturn]] void raise(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lemma::base
