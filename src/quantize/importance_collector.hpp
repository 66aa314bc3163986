// SPDX-License-Identifier: Apache-2.0
// Collects importance: the sum of the squares of what each column of each matrix of a model meets
// while a text runs through it, for each expert by itself.
//
//   Collected collected = collect_importance(model, windows, {});
//   collected.importance.write("importance.gguf");
#pragma once

#include <string>
#include <vector>

#include "quantize/calibration.hpp"
#include "quantize/importance.hpp"

namespace lemma::quantize {

struct Collected {
  Importance importance;
  std::vector<std::string> unknown;  ///< matrices that `quantize` may change, without inputs here
};

/// Throws what calibrate() throws, and kNonFinite for sums that leave the range of f32.
Collected collect_importance(runtime::LoadedModel& model, const Windows& windows,
                             const CalibrationOptions& options);

}  // namespace lemma::quantize
