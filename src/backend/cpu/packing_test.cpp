// SPDX-License-Identifier: Apache-2.0
// What project_test.cpp does not see of packing: sizes, rows that are not there, and that a panel
// depends on its rows' bytes alone.
#include "backend/cpu/packing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace lemma::cpu {
namespace {

using weights::Format;

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 numbers(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(numbers());
  return bytes;
}

weights::Matrix matrix_of(Format format, std::uint64_t rows, std::uint64_t cols,
                          const std::byte* bytes) {
  weights::Matrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.bytes = bytes;
  return matrix;
}

std::vector<std::byte> panel_of(const weights::Matrix& matrix, std::uint64_t row) {
  std::vector<std::byte> panel(panel_bytes(matrix.format, matrix.cols), std::byte{0xee});
  pack_panel(matrix, row, panel.data());
  return panel;
}

std::uint64_t some_cols(Format format) {
  return std::max<std::uint64_t>(3 * weights::traits(format).block_elements, 35);
}

/// A weight's memory beside its part of the file. 1.1 is what is wanted of formats from three bits
/// on and of Q2_K, 1.5 of the IQ1 and IQ2 formats.
TEST(Packing, TakesLittleMoreThanTheFile) {
  constexpr std::uint64_t kCols = 4096;
  for (const Format format : weights::kFormats) {
    const double ratio =
        double(panel_bytes(format, kCols)) / double(kPanelRows * weights::row_bytes(format, kCols));
    double bound = 1.1;
    if (format >= Format::kIQ1_S && format <= Format::kIQ2_S) bound = 1.5;
    EXPECT_LE(ratio, bound) << weights::traits(format).name;
    EXPECT_EQ(panel_bytes(format, kCols) % 64, 0u) << weights::traits(format).name;
  }
}

TEST(Packing, DependsOnTheRowsOfAPanelAlone) {
  for (const Format format : weights::kFormats) {
    const std::uint64_t cols = some_cols(format);
    const std::size_t row = weights::row_bytes(format, cols);
    const std::vector<std::byte> bytes = random_bytes(40 * row, 7);
    std::vector<std::byte> shifted(16 * row + 1);
    std::memcpy(shifted.data() + 1, bytes.data() + 16 * row, 16 * row);
    EXPECT_EQ(panel_of(matrix_of(format, 40, cols, bytes.data()), 16),
              panel_of(matrix_of(format, 16, cols, shifted.data() + 1), 0))
        << weights::traits(format).name;
  }
}

/// A panel that lacks rows is that of a matrix which has rows of zero bytes there, but for formats
/// where zero bytes are no zeros; what counts is that every row that exists is in its place.
TEST(Packing, PutsEachRowInItsPlaceWhateverElseIsThere) {
  for (const Format format : weights::kFormats) {
    const std::uint64_t cols = some_cols(format);
    const std::size_t row = weights::row_bytes(format, cols);
    const std::vector<std::byte> bytes = random_bytes(16 * row, 11);
    const std::vector<std::byte> all = panel_of(matrix_of(format, 16, cols, bytes.data()), 0);
    const std::vector<std::byte> five = panel_of(matrix_of(format, 5, cols, bytes.data()), 0);
    ASSERT_EQ(all.size(), five.size());
    std::size_t different = 0, empty = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] == five[i]) continue;
      ++different;
      empty += five[i] == std::byte{0} ? 1u : 0u;
    }
    // Eleven rows in sixteen are missing, and a random byte is rarely zero.
    EXPECT_EQ(different, empty) << weights::traits(format).name;
    EXPECT_GT(different, all.size() / 2) << weights::traits(format).name;
    EXPECT_LT(different, all.size() * 3 / 4) << weights::traits(format).name;
  }
}

}  // namespace
}  // namespace lemma::cpu
