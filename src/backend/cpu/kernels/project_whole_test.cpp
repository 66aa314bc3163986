// SPDX-License-Identifier: Apache-2.0
// Entered rows in whole numbers of 13 bits, wherever a level has them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "backend/cpu/kernels/kernel_test_data.hpp"
#include "backend/cpu/kernels/project_whole.hpp"

namespace lemma::cpu {
namespace {

using weights::Format;

/// The level's table, or a skipped test.
class WholeTest : public ::testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    for (const base::Isa isa : base::tested_isas()) {
      if (kernels(isa).round_whole != nullptr && table_ == nullptr) table_ = &kernels(isa);
    }
    if (table_ == nullptr) GTEST_SKIP() << "no level of this machine has whole numbers";
  }

  /// Rows [first, first + count), rounded before where `whole` is given.
  std::vector<float> project(TestMatrix& m, TestRows& rows, std::size_t first, std::size_t count,
                             std::byte* whole = nullptr) {
    const std::size_t cols = m.matrix.cols;
    GuardedMemory<float> out(count * m.matrix.rows, 0);
    ProjectJob job;
    job.panels = m.panels.data();
    job.panel_bytes = m.panel;
    job.outputs = m.matrix.rows;
    job.cols = cols;
    job.rows = count;
    job.x = rows.x.data() + first * cols;
    job.x_stride = cols;
    if (whole != nullptr) job.quantized.whole = whole + first * whole_row_bytes(cols);
    job.out = out.data();
    job.out_stride = m.matrix.rows;
    table_->project[static_cast<std::size_t>(kernel_of(GetParam()))][0](job);
    return {out.data(), out.data() + out.size()};
  }

  const KernelTable* table_ = nullptr;
};

TEST_P(WholeTest, MultipliesCodesExactlyAndAddsBlocksInOrder) {
  // An odd number of columns and a last block that is short; more than one run of columns; largest
  // codes only; numbers that are taken for zeros, and some that are not quite.
  for (const float scale : {1.f, 3e4f, 1e-33f, 1e-29f, 0.f}) {
    const std::size_t cols = 1157, outputs = 37, count = 26;
    Numbers numbers(3);
    TestMatrix m(GetParam(), outputs, cols, numbers);
    TestRows rows(count, cols);
    numbers.fill({rows.x.data(), rows.x.size()}, scale);
    for (std::size_t k = 0; k < 256; ++k) rows.x[cols + k] = k % 128 < 64 ? scale : -scale;
    std::vector<WholeRow> w, x;
    for (std::size_t o = 0; o < outputs; ++o)
      w.emplace_back(std::span(m.decoded).subspan(o * cols, cols));
    for (std::size_t r = 0; r < count; ++r)
      x.emplace_back(std::span<const float>(rows.x.data() + r * cols, cols));
    const std::vector<float> out = project(m, rows, 0, count);
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t o = 0; o < outputs; ++o) {
        float sum = 0.f;
        for (std::size_t first = 0; first < cols; first += kWholeColumns) {
          std::int64_t dot = 0;
          for (std::size_t k = first; k < std::min(first + kWholeColumns, cols); ++k)
            dot += w[o].codes[k] * x[r].codes[k];
          ASSERT_LT(std::abs(dot), std::int64_t{1} << 31);
          const std::size_t block = first / kWholeColumns;
          sum = std::fma(static_cast<float>(dot), w[o].scales[block] * x[r].scales[block], sum);
        }
        ASSERT_EQ(sum, out[r * outputs + o]) << "row " << r << " output " << o << " " << scale;
      }
    }
  }
}

TEST_P(WholeTest, GivesTheSameBitsInAnyCompanyFromRowsRoundedBeforeOrNot) {
  for (const std::size_t cols : {1u, 31u, 128u, 129u, 640u, 1029u}) {
    const std::size_t outputs = 83, count = 27;
    Numbers numbers(cols);
    TestMatrix m(GetParam(), outputs, cols, numbers);
    TestRows rows(count, cols);
    numbers.fill({rows.x.data(), rows.x.size()});
    GuardedMemory<std::byte> whole(count * whole_row_bytes(cols), 0);
    for (std::size_t r = 0; r < count; ++r)
      table_->round_whole(rows.x.data() + r * cols, cols, whole.data() + r * whole_row_bytes(cols));
    const std::vector<float> all = project(m, rows, 0, count);
    EXPECT_EQ(all, project(m, rows, 0, count, whole.data())) << cols;
    for (std::size_t some = 1; some <= 13; ++some) {
      const std::vector<float> want(all.end() - static_cast<std::ptrdiff_t>(some * outputs),
                                    all.end());
      ASSERT_EQ(want, project(m, rows, count - some, some)) << some << " of " << cols;
      ASSERT_EQ(want, project(m, rows, count - some, some, whole.data())) << some;
    }
  }
}

TEST_P(WholeTest, LetsNanAndInfinityThrough) {
  const std::size_t cols = 300, outputs = 17;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t at : {0u, 127u, 128u, 299u}) {
      Numbers numbers(5);
      TestMatrix m(GetParam(), outputs, cols, numbers);
      TestRows rows(3, cols);
      numbers.fill({rows.x.data(), rows.x.size()});
      const std::vector<float> good = project(m, rows, 0, 3);
      rows.x[cols + at] = bad;
      const std::vector<float> out = project(m, rows, 0, 3);
      for (std::size_t o = 0; o < outputs; ++o) {
        EXPECT_FALSE(std::isfinite(out[outputs + o])) << at;
        EXPECT_EQ(good[o], out[o]);
        EXPECT_EQ(good[2 * outputs + o], out[2 * outputs + o]);
      }
    }
    // A weight that is not finite, and rows of zeros.
    Numbers numbers(6);
    TestMatrix m(GetParam(), outputs, cols, numbers);
    const std::uint16_t bits = GetParam() == Format::kF16 ? 0x7c00 : 0x7f80;
    const std::uint16_t weight = static_cast<std::uint16_t>(bits | (std::isnan(bad) ? 1 : 0));
    std::memcpy(m.panels.data() + (130 * kPanelRows + 3) * 2, &weight, 2);
    TestRows rows(2, cols);
    numbers.fill({rows.x.data(), cols});
    std::fill_n(rows.x.data() + cols, cols, 0.f);
    const std::vector<float> out = project(m, rows, 0, 2);
    for (std::size_t i = 0; i < out.size(); ++i)
      EXPECT_EQ(i % outputs != 3, std::isfinite(out[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Format, WholeTest, ::testing::Values(Format::kF16, Format::kBF16),
                         [](const auto& tested) {
                           return std::string(weights::traits(tested.param).name);
                         });

}  // namespace
}  // namespace lemma::cpu
