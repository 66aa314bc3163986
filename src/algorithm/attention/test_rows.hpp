// SPDX-License-Identifier: Apache-2.0
// What the tests of attention share: random rows, readers over a matrix, and the form of a refusal.
// Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "algorithm/attention/gqa.hpp"
#include "algorithm/tolerance.hpp"
#include "lemma/error.hpp"

namespace lemma::algorithm::test {

using Row = std::vector<float>;
using Ids = std::vector<std::uint32_t>;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline Row random_row(std::size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Row row(n);
  for (float& value : row) value = normal(generator);
  return row;
}

/// Row i of a matrix of `width` columns.
inline std::span<const float> row_of(const Row& data, std::size_t width, std::size_t i) {
  return std::span(data).subspan(i * width, width);
}

/// Reads rows of `data`, which must outlive the reader.
inline RowReader rows_of(const Row& data, std::size_t width) {
  return [&data, width](std::uint32_t j) { return row_of(data, width, j); };
}

inline void expect_near(const Row& got, const Row& want, const Tolerance& tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0.0;
  for (const float value : want) largest = std::max(largest, std::abs(double(value)));
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(tolerance.admits(got[i], want[i], largest))
        << "[" << i << "] " << got[i] << " for " << want[i];
  }
}

/// All ways to cut n rows into chunks: calls visit(first, end) for each chunk in order, and
/// `restart` before each way.
template <typename Restart, typename Visit>
void for_all_cuts(std::uint32_t n, Restart restart, Visit visit) {
  for (std::uint32_t cuts = 0; cuts < 1u << (n - 1); ++cuts) {  // bit p: a chunk ends after row p
    restart(cuts);
    for (std::uint32_t begin = 0, end = 0; begin < n; begin = end) {
      for (end = begin + 1; end < n && (cuts >> (end - 1) & 1u) == 0;) ++end;
      visit(begin, end);
    }
  }
}

template <typename Spec>
void expect_refused(const Spec& spec, const std::string& field) {
  try {
    spec.validate();
    ADD_FAILURE() << field << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
  }
}

template <typename Spec, typename Member, typename Value>
Spec changed(Spec spec, Member member, Value value) {
  spec.*member = value;
  return spec;
}

}  // namespace lemma::algorithm::test
