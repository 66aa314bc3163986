// SPDX-License-Identifier: Apache-2.0
#include "quantize/gptq.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/check.hpp"
#include "base/raise.hpp"
#include "weights/formats/codec.hpp"
#include "weights/formats/codes.hpp"

namespace lemma::quantize {
namespace {

/// In eight sums, which a compiler can keep side by side.
double dot(const double* a, const double* b, std::size_t n) noexcept {
  std::array<double, 8> sums{};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::size_t l = 0; l < 8; ++l) sums[l] += a[i + l] * b[i + l];
  double sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const double part : sums) sum += part;
  return sum;
}

/// The lower triangle of a symmetric [n, n] becomes L with L L^T equal to it; false if it is not
/// positive definite.
bool factor(std::vector<double>& a, std::size_t n, base::ThreadPool& pool) {
  for (std::size_t j = 0; j < n; ++j) {
    double* const pivot = a.data() + j * n;
    const double square = pivot[j] - dot(pivot, pivot, j);
    if (!(square > 0)) return false;
    pivot[j] = std::sqrt(square);
    pool.parallel_for(n - j - 1, 64, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = j + 1 + begin; i < j + 1 + end; ++i) {
        double* const row = a.data() + i * n;
        row[j] = (row[j] - dot(row, pivot, j)) / pivot[j];
      }
    });
  }
  return true;
}

/// L becomes its inverse, row by row.
void invert(std::vector<double>& a, std::size_t n, base::ThreadPool& pool) {
  std::vector<double> row(n);
  for (std::size_t i = 0; i < n; ++i) {
    double* const out = a.data() + i * n;
    std::copy_n(out, i + 1, row.data());
    const double scale = 1 / row[i];
    pool.parallel_for(i, 256, [&](std::size_t begin, std::size_t end) {
      std::fill(out + begin, out + end, 0.0);
      for (std::size_t k = begin; k < i; ++k) {
        const double* const known = a.data() + k * n;
        const std::size_t last = std::min(end, k + 1);
        for (std::size_t c = begin; c < last; ++c) out[c] -= row[k] * known[c];
      }
      for (std::size_t c = begin; c < end; ++c) out[c] *= scale;
    });
    out[i] = scale;
  }
}

}  // namespace

double output_error(std::span<const float> error, std::span<const float> hessian) {
  const std::size_t n = error.size();
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double row = 0.5 * double{hessian[i * n + i]} * error[i];
    for (std::size_t j = 0; j < i; ++j) row += double{hessian[i * n + j]} * error[j];
    sum += 2 * row * error[i];
  }
  return sum;
}

Gptq::Gptq(std::span<const float> hessian, std::size_t cols, weights::Format format, double damping,
           base::ThreadPool& pool)
    : cols_(cols),
      block_(weights::traits(format).block_elements),
      format_(weights::traits(format)),
      order_(cols),
      importance_(cols) {
  LEMMA_CHECK(hessian.size() == cols * cols && cols % block_ == 0);
  LEMMA_CHECK(weights::formats::has_codes(format));
  for (std::size_t c = 0; c < cols; ++c) importance_[c] = hessian[c * cols + c];
  std::vector<double> of_block(cols / block_);
  for (std::size_t c = 0; c < cols; ++c) of_block[c / block_] += importance_[c];
  std::iota(order_.begin(), order_.end(), 0u);
  std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    const std::size_t p = a / block_, q = b / block_;
    if (p != q) return of_block[p] != of_block[q] ? of_block[p] > of_block[q] : p < q;
    return importance_[a] > importance_[b];
  });

  const double mean = std::accumulate(importance_.begin(), importance_.end(), 0.0) / double(cols);
  std::vector<double> work(cols * cols);
  // The factor of H in the reverse of the order, inverted and turned back, is U.
  for (double added = mean > 0 ? damping * mean : 1.0;; added *= 10) {
    for (std::size_t i = 0; i < cols; ++i)
      for (std::size_t j = 0; j <= i; ++j) {
        const std::size_t a = order_[cols - 1 - i], b = order_[cols - 1 - j];
        work[i * cols + j] = double{hessian[std::max(a, b) * cols + std::min(a, b)]};
        if (i == j) work[i * cols + j] += added;
      }
    if (factor(work, cols, pool)) break;
    if (!(added < 1e6 * mean))
      base::raise(ErrorKind::kInternal, "a Hessian of {} columns has no factor", cols);
  }
  invert(work, cols, pool);
  upper_.resize(cols * cols);
  for (std::size_t j = 0; j < cols; ++j)
    for (std::size_t k = j; k < cols; ++k)
      upper_[j * cols + k] = static_cast<float>(work[(cols - 1 - j) * cols + (cols - 1 - k)]);
}

void Gptq::encode(std::span<const float> in, std::size_t rows, std::byte* out) const {
  LEMMA_CHECK(rows <= kRowsAtOnce && in.size() == rows * cols_);
  // Weights in the order, errors made good as they are: [rows, cols].
  std::vector<float> work(rows * cols_), block(block_);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t j = 0; j < cols_; ++j) work[r * cols_ + j] = in[r * cols_ + order_[j]];
  const std::size_t row_bytes = cols_ / block_ * format_.block_bytes;
  std::vector<weights::formats::Grid> grids(rows);
  std::vector<std::int8_t> codes(rows * block_);
  for (std::size_t first = 0; first < cols_; first += block_) {
    const std::size_t column = order_[first] / block_ * block_;
    std::byte* const to = out + column / block_ * format_.block_bytes;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t j = first; j < first + block_; ++j)
        block[order_[j] - column] = work[r * cols_ + j];
      format_.quantize(block, to + r * row_bytes, importance_.data() + column);
      read_grid(format_.format, to + r * row_bytes, grids[r]);
    }
    for (std::size_t j = first; j < first + block_; ++j) {
      const float* const upper = upper_.data() + j * cols_;
      const std::size_t i = order_[j] - column;
      for (std::size_t r = 0; r < rows; ++r) {
        const weights::formats::Grid& grid = grids[r];
        float* const w = work.data() + r * cols_;
        const float step = grid.steps[i];
        const int code =
            weights::formats::int_code(double{w[j]} + grid.offsets[i],
                                       step != 0.f ? 1 / double{step} : 0, grid.low, grid.high);
        codes[r * block_ + i] = static_cast<std::int8_t>(code);
        const float error = (w[j] - (step * float(code) - grid.offsets[i])) / upper[j];
        for (std::size_t k = j + 1; k < cols_; ++k) w[k] -= error * upper[k];
      }
    }
    for (std::size_t r = 0; r < rows; ++r)
      weights::formats::write_codes(format_.format, std::span(codes).subspan(r * block_, block_),
                                    to + r * row_bytes);
  }
}

}  // namespace lemma::quantize
