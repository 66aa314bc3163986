// SPDX-License-Identifier: Apache-2.0
// Calibration: a text through the model, and what its matrices read on the way. Rows come in the
// order of the text, whatever the steps and the threads, so what is summed from them has the same
// bits each time. Owned by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/function_ref.hpp"
#include "quantize/matrix_inputs.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::quantize {

/// Calls its argument for each window of a text, in order. A window is evaluated by itself.
using Windows =
    std::function<void(const std::function<void(std::span<const std::int32_t> ids)>& body)>;

struct CalibrationOptions {
  algorithm::RowFormat state = algorithm::RowFormat::kF32;
  std::uint32_t window = 512;  ///< the longest
  std::uint32_t rows = 256;    ///< of a step; a model whose rows look ahead takes whole windows
};

/// Must not throw. Told of each row that matrix `matrix` (an expert, or 0) of an input's stack
/// reads.
using TakeRow =
    base::FunctionRef<void(std::size_t input, std::size_t matrix, std::span<const float> row)>;

/// Runs all windows, as far as the last of the `wanted` inputs (by index) is made. Throws what
/// evaluation throws, and kNonFinite for a row that holds no numbers.
void calibrate(runtime::LoadedModel& model, const MatrixInputs& inputs,
               const std::vector<bool>& wanted, const Windows& windows,
               const CalibrationOptions& options, TakeRow take);

}  // namespace lemma::quantize
