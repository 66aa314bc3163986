// SPDX-License-Identifier: Apache-2.0
// Hessians: for each matrix of a model the sum of x x^T over what it reads of a calibration text,
// which is how the squared error of its outputs depends on errors of its weights. They are large:
// as many as a budget of memory allows are collected in one run of the text, and the next ones in
// another run when they are asked for. Sums have the same bits for any number of threads. Owned by
// one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.hpp"
#include "quantize/calibration.hpp"

namespace lemma::quantize {

class Hessians {
 public:
  static constexpr std::uint64_t kBudget = std::uint64_t{2} << 30;

  /// All must outlive it. `budget` is in bytes; one Hessian is held however large it is.
  Hessians(runtime::LoadedModel& model, Windows windows, const CalibrationOptions& options,
           int threads, std::uint64_t budget = kBudget);

  /// Whether all columns of the tensor are known to meet inputs.
  bool knows(std::string_view tensor) const;
  /// Tensors in the order in which at() will be asked for them, so that a run collects what comes
  /// next.
  void expect(std::span<const std::string> tensors);

  struct Hessian {
    std::span<const float> sum;  ///< [cols, cols], the lower triangle
    double rows = 0;             ///< seen; 0: the matrix was never used
  };
  /// Of matrix `matrix` of a tensor that it knows; valid until the next call. Throws what
  /// calibrate() throws.
  Hessian at(std::string_view tensor, std::size_t matrix);

  std::size_t runs() const noexcept { return runs_; }  ///< of the text, up to now
  const runtime::LoadedModel& model() const noexcept { return model_; }

 private:
  static constexpr std::size_t kPanel = 32;  ///< rows that are added at a time

  struct Unit {  ///< of one matrix of an input
    std::vector<float> sum, panel;
    std::size_t filled = 0;
    double rows = 0;
  };
  struct Key {
    std::size_t input = 0, matrix = 0;
    auto operator<=>(const Key&) const = default;
  };

  const MatrixInput& input_of(std::string_view tensor) const;
  void collect(const Key& first);
  void take(Unit& unit, std::span<const float> row);
  void flush(Unit& unit, std::size_t cols);

  runtime::LoadedModel& model_;
  Windows windows_;
  CalibrationOptions options_;
  base::ThreadPool pool_;
  std::uint64_t budget_;
  MatrixInputs inputs_;
  std::vector<Key> order_;
  std::map<Key, Unit> held_;
  std::size_t runs_ = 0;
};

}  // namespace lemma::quantize
