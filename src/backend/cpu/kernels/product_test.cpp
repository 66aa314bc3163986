// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels/kernel_test_data.hpp"

namespace lemma::cpu {
namespace {

class ProductTest : public KernelTest {};

ProductJob job_of(GuardedMemory<float>& panel, std::size_t stride, std::size_t k,
                  std::size_t columns, GuardedMemory<float>& x, std::size_t rows, float* out) {
  ProductJob job;
  job.panel = panel.data();
  job.k_stride = stride;
  job.panel_stride = kPanelRows;
  job.k = k;
  job.columns = columns;
  job.x = x.data();
  job.x_stride = k;
  job.rows = rows;
  job.out = out;
  job.out_stride = columns;
  return job;
}

TEST_P(ProductTest, MultipliesAnyNumberOfRowsAndColumns) {
  for (const std::size_t columns : {1, 15, 16, 17, 48, 64, 80, 100}) {
    for (std::size_t rows = 1; rows <= 17; ++rows) {
      const std::size_t k = 37, stride = (columns + 15) / 16 * 16;
      GuardedMemory<float> panel(k * stride), x(rows * k), out(rows * columns);
      Numbers numbers(columns + rows);
      numbers.fill({panel.data(), panel.size()});
      numbers.fill({x.data(), x.size()});
      table().product(job_of(panel, stride, k, columns, x, rows, out.data()));
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
          double want = 0, magnitude = 0;
          for (std::size_t i = 0; i < k; ++i) {
            const double term = double(x[r * k + i]) * double(panel[i * stride + c]);
            want += term;
            magnitude += std::fabs(term);
          }
          // k multiply-adds, each rounded (twice, where they are not fused).
          ASSERT_NEAR(out[r * columns + c], want, 2.0 * k * 0x1p-24 * magnitude);
        }
      }
    }
  }
}

TEST_P(ProductTest, ContinuesASumThatWasCutAnywhere) {
  const std::size_t k = 29, columns = 48, rows = 5;
  GuardedMemory<float> panel(k * columns), x(rows * k);
  Numbers numbers(2);
  numbers.fill({panel.data(), panel.size()});
  numbers.fill({x.data(), x.size()});
  std::vector<float> whole(rows * columns), parts(rows * columns);
  table().product(job_of(panel, columns, k, columns, x, rows, whole.data()));
  for (std::size_t cut = 1; cut < k; ++cut) {
    ProductJob job = job_of(panel, columns, k, columns, x, rows, parts.data());
    job.k = cut;
    table().product(job);
    job.k = k - cut;
    job.panel += cut * columns;
    job.x += cut;
    job.accumulate = true;
    table().product(job);
    ASSERT_EQ(whole, parts) << cut;
  }
}

TEST_P(ProductTest, GivesARowTheSameBitsInAnyCompany) {
  const std::size_t k = 100, columns = 72, most = 17, stride = 80;
  GuardedMemory<float> panel(k * stride), x(most * k);
  Numbers numbers(4);
  numbers.fill({panel.data(), panel.size()});
  numbers.fill({x.data(), x.size()});
  std::vector<float> alone(most * columns), together(most * columns);
  for (std::size_t r = 0; r < most; ++r) {
    ProductJob job = job_of(panel, stride, k, columns, x, 1, alone.data() + r * columns);
    job.x += r * k;
    table().product(job);
  }
  for (std::size_t rows = 1; rows <= most; ++rows) {
    table().product(job_of(panel, stride, k, columns, x, rows, together.data()));
    ASSERT_EQ(0, std::memcmp(together.data(), alone.data(), rows * columns * sizeof(float)));
  }
}

LEMMA_FOR_EACH_ISA(ProductTest);

}  // namespace
}  // namespace lemma::cpu
