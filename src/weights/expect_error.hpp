// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: the lemma::Error that an expression throws, checked by its kind and
// by a part of its message.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lemma/error.hpp"

namespace lemma::weights {

inline void expect_error(ErrorKind kind, const std::string& part,
                         const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "no error; expected one with '" << part << "'";
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.kind()), to_string(kind)) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(part));
  }
}

}  // namespace lemma::weights
