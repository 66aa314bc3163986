// SPDX-License-Identifier: Apache-2.0
// A plan as text for people and as JSON for programs. Text folds runs of equal layers into one
// entry and leaves the weights' names out; JSON is complete: every spec field and every weight
// reference, layer by layer.
#pragma once

#include <string>

#include "model/plan.hpp"

namespace lemma::model {

/// Several lines, indented, ending in a line break.
std::string to_text(const Plan& plan);

/// One JSON object, indented by two. Absent parts are null; a view is an object with its kind and,
/// where they matter, begin, end and stride. LongRoPE and rope_freqs factors are listed.
std::string to_json(const Plan& plan);

}  // namespace lemma::model
