// SPDX-License-Identifier: Apache-2.0
#include "eval/file_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <variant>

#include "base/checksum.hpp"
#include "base/thread_pool.hpp"
#include "base/utf8.hpp"
#include "weights/rows_of.hpp"

namespace lemma::eval {
namespace {

using weights::TensorInfo;

constexpr std::size_t kGrain = 16;  ///< rows that a thread takes at a time

/// Runs body(row begin, row end) over the rows, on all threads.
void each_rows(base::ThreadPool& pool, std::uint64_t rows,
               base::FunctionRef<void(std::size_t, std::size_t)> body) {
  pool.parallel_for(static_cast<std::size_t>(rows), kGrain, body);
}

TensorCheck check_tensor(const weights::Checkpoint& checkpoint, const TensorInfo& tensor,
                         base::ThreadPool& pool) {
  const weights::Matrix matrix = weights::rows_of(checkpoint, tensor);
  TensorCheck result{.name = tensor.name, .format = tensor.format};
  result.checksum = base::checksum({matrix.bytes, matrix.size_bytes()});
  // A row's sum is its own, and rows are added in order: the same for any number of threads.
  std::vector<double> squares(static_cast<std::size_t>(matrix.rows));
  std::vector<float> largest(squares.size());
  std::vector<char> bad(squares.size());
  each_rows(pool, matrix.rows, [&](std::size_t begin, std::size_t end) {
    std::vector<float> row(matrix.cols);
    for (std::size_t r = begin; r < end; ++r) {
      weights::traits(matrix.format).dequantize(matrix.row(r), row);
      for (const float value : row) {
        if (!std::isfinite(value)) {
          bad[r] = 1;
          continue;
        }
        squares[r] += double(value) * value;
        largest[r] = std::max(largest[r], std::fabs(value));
      }
    }
  });
  double sum = 0;
  for (std::size_t r = 0; r < squares.size(); ++r) {
    sum += squares[r];
    result.largest = std::max(result.largest, largest[r]);
    if (bad[r] && !result.bad_row) result.bad_row = r;
    result.bad_rows += bad[r] != 0;
  }
  result.rms = std::sqrt(sum / std::max(1.0, double(tensor.elements())));
  return result;
}

TensorDifference compare_numbers(const weights::Matrix& first, const weights::Matrix& second,
                                 base::ThreadPool& pool) {
  TensorDifference result;
  std::vector<double> squares(static_cast<std::size_t>(first.rows)), differences(squares.size());
  std::vector<float> largest(squares.size());
  each_rows(pool, first.rows, [&](std::size_t begin, std::size_t end) {
    std::vector<float> a(first.cols), b(first.cols);
    for (std::size_t r = begin; r < end; ++r) {
      weights::traits(first.format).dequantize(first.row(r), a);
      weights::traits(second.format).dequantize(second.row(r), b);
      for (std::size_t c = 0; c < a.size(); ++c) {
        const float difference = a[c] - b[c];
        squares[r] += double(a[c]) * a[c];
        differences[r] += double(difference) * difference;
        largest[r] = std::max(largest[r], std::fabs(difference));
      }
    }
  });
  double sum = 0, of = 0;
  for (std::size_t r = 0; r < squares.size(); ++r) {
    of += squares[r];
    sum += differences[r];
    result.largest = std::max(result.largest, largest[r]);
  }
  result.relative_rms = of > 0 ? std::sqrt(sum / of) : std::sqrt(sum);
  return result;
}

std::string value_text(const weights::Value& value) {
  return std::visit(
      [](const auto& data) -> std::string {
        using Data = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<Data, std::string>)
          return data.size() > 60 ? fmt::format("{} bytes", data.size()) : base::repair_utf8(data);
        else if constexpr (std::is_arithmetic_v<Data>)
          return fmt::format("{}", data);
        else
          return fmt::format("{} entries", data.size());
      },
      value.data);
}

void compare_keys(const weights::Metadata& first, const weights::Metadata& second,
                  std::vector<std::string>& keys) {
  for (const auto& [key, value] : first.pairs()) {
    const weights::Value* const other = second.find(key);
    const std::string name = base::repair_utf8(key);
    if (other == nullptr)
      keys.push_back(fmt::format("{}: only in the first", name));
    else if (other->data != value.data)
      keys.push_back(fmt::format("{}: {} and {}", name, value_text(value), value_text(*other)));
  }
  for (const auto& [key, value] : second.pairs())
    if (!first.has(key))
      keys.push_back(fmt::format("{}: only in the second", base::repair_utf8(key)));
}

}  // namespace

std::vector<TensorCheck> verify(const weights::Checkpoint& checkpoint, int threads,
                                const base::Progress& progress) {
  base::ThreadPool pool(threads);
  std::vector<TensorCheck> checks;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    checks.push_back(check_tensor(checkpoint, tensor, pool));
    if (progress)
      progress("verifying", double(checks.size()) / double(checkpoint.tensors().size()));
  }
  return checks;
}

CheckpointDifference difference(const weights::Checkpoint& first, const weights::Checkpoint& second,
                                int threads, const base::Progress& progress) {
  base::ThreadPool pool(threads);
  CheckpointDifference result;
  compare_keys(first.metadata(), second.metadata(), result.keys);
  std::size_t done = 0;
  for (const TensorInfo& tensor : first.tensors()) {
    if (progress) progress("comparing", double(++done) / double(first.tensors().size()));
    const TensorInfo* const other = second.find(tensor.name);
    TensorDifference found{.name = tensor.name, .format = tensor.format};
    if (other == nullptr) {
      found.what = "only in the first";
    } else if (other->shape != tensor.shape) {
      found.what = fmt::format("shape [{}] and [{}]", fmt::join(tensor.shape, ", "),
                               fmt::join(other->shape, ", "));
    } else {
      const weights::Matrix a = weights::rows_of(first, tensor);
      const weights::Matrix b = weights::rows_of(second, *other);
      if (a.format == b.format && std::equal(a.bytes, a.bytes + a.size_bytes(), b.bytes)) {
        ++result.equal;
        continue;
      }
      found = compare_numbers(a, b, pool);
      found.name = tensor.name;
      found.format = tensor.format;
      found.other_format = other->format;
    }
    result.tensors.push_back(std::move(found));
  }
  for (const TensorInfo& tensor : second.tensors())
    if (first.find(tensor.name) == nullptr)
      result.tensors.push_back({.name = tensor.name, .what = "only in the second"});
  return result;
}

}  // namespace lemma::eval
