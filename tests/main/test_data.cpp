// SPDX-License-Identifier: Apache-2.0
#include "test_data.hpp"

#include <cstdlib>
#include <string>

namespace lemma::test {

std::filesystem::path source_dir() {
  return LEMMA_SOURCE_DIR;
}

std::optional<std::filesystem::path> find_data(std::string_view relative) {
  const char* variable = std::getenv("LEMMA_TEST_DATA");
  const std::filesystem::path root = variable && *variable ? std::filesystem::path(variable)
                                                           : source_dir().parent_path() / "shared";
  auto path = root / relative;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  return path;
}

}  // namespace lemma::test
