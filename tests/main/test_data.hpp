// SPDX-License-Identifier: Apache-2.0
// Where tests find shared data: goldens, models, tokenizers, templates. The folder is named by the
// variable LEMMA_TEST_DATA; without it, `../shared` beside the source tree is used. A test that
// needs data which is absent skips itself aloud; the runner counts the skips, and with CI=true a
// skip is a failure.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string_view>

namespace lemma::test {

/// The path of `relative` in the shared data folder, or nothing where it does not exist.
std::optional<std::filesystem::path> find_data(std::string_view relative);

/// The root of the source tree that this test was built from.
std::filesystem::path source_dir();

}  // namespace lemma::test

/// Binds `name` to the path of shared data, or skips the test with a message that names it.
#define LEMMA_TEST_DATA_OR_SKIP(name, relative)                                                   \
  const auto name##_found = ::lemma::test::find_data(relative);                                   \
  if (!name##_found)                                                                              \
    GTEST_SKIP() << "no test data '" << relative << "' (set LEMMA_TEST_DATA to the data folder)"; \
  const std::filesystem::path& name = *name##_found
