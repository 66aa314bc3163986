// SPDX-License-Identifier: Apache-2.0
#include "quantize/importance_collector.hpp"

#include <algorithm>
#include <cmath>

#include "base/raise.hpp"
#include "quantize/weight_uses.hpp"

namespace lemma::quantize {
namespace {

/// Of one input: a row for each matrix.
struct Sums {
  std::vector<double> squares;  ///< [matrices, cols]
  std::vector<double> counts;   ///< [matrices]
};

Importance::Entry entry_of(const weights::TensorInfo& tensor, const MatrixInputs& inputs,
                           const std::vector<MatrixInputs::Use>& uses,
                           const std::vector<Sums>& sums) {
  const std::size_t cols = tensor.row_elements();
  const std::size_t matrices = inputs.inputs[uses.front().input].matrices();
  std::vector<double> squares(matrices * cols), counts(matrices);
  for (const MatrixInputs::Use& use : uses) {
    const MatrixInput& input = inputs.inputs[use.input];
    if (input.matrices() != matrices || use.first_column + input.cols > cols)
      base::raise(ErrorKind::kInternal, "tensor '{}': its uses do not fit each other", tensor.name);
    for (std::size_t m = 0; m < matrices; ++m) {
      // Parts of a row that meet other sites than its start have been met as often.
      if (use.first_column == 0) counts[m] += sums[use.input].counts[m];
      for (std::size_t c = 0; c < input.cols; ++c)
        squares[m * cols + use.first_column + c] += sums[use.input].squares[m * input.cols + c];
    }
  }
  Importance::Entry entry{cols, std::vector<float>(squares.begin(), squares.end()),
                          std::vector<float>(counts.begin(), counts.end())};
  if (!std::all_of(entry.sums.begin(), entry.sums.end(), [](float x) { return std::isfinite(x); }))
    base::raise(ErrorKind::kNonFinite, "the squares of what '{}' reads leave the range of f32",
                tensor.name);
  return entry;
}

}  // namespace

Collected collect_importance(runtime::LoadedModel& model, const Windows& windows,
                             const CalibrationOptions& options) {
  const MatrixInputs inputs = matrix_inputs(model);
  std::vector<Sums> sums;
  for (const MatrixInput& input : inputs.inputs)
    sums.push_back({std::vector<double>(input.matrices() * input.cols),
                    std::vector<double>(input.matrices())});
  const auto take = [&](std::size_t i, std::size_t matrix, std::span<const float> row) {
    sums[i].counts[matrix] += 1;
    double* const squares = sums[i].squares.data() + matrix * row.size();
    for (std::size_t c = 0; c < row.size(); ++c) squares[c] += double{row[c]} * row[c];
  };
  Collected collected;
  const auto counted = [&](const std::function<void(std::span<const std::int32_t>)>& body) {
    windows([&](std::span<const std::int32_t> ids) {
      body(ids);
      ++collected.importance.parts;
    });
  };
  calibrate(model, inputs, std::vector<bool>(inputs.inputs.size(), true), counted, options, take);

  collected.importance.tokens_per_part = options.window;
  for (const std::string& name : weight_uses(model.checkpoint()).quantizable) {
    const auto found = inputs.uses.find(name);
    if (found == inputs.uses.end()) {
      collected.unknown.push_back(name);
      continue;
    }
    collected.importance.entries.emplace(
        name, entry_of(model.checkpoint().at(name), inputs, found->second, sums));
  }
  return collected;
}

}  // namespace lemma::quantize
