// SPDX-License-Identifier: Apache-2.0
// The calibration text of `lemma imatrix` and `lemma quantize --gptq`: its tokens, cut into windows
// as `lemma eval` cuts them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "quantize/calibration.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::cli {

struct CalibrationTokens {
  std::vector<std::int32_t> ids;
  quantize::CalibrationOptions options;
  quantize::Windows windows;
  std::string digest;  ///< of the ids and how they are cut
};

/// `model` must outlive the result. Throws kUsage for a text that is too short.
CalibrationTokens calibration_tokens(const CalibrationText& text, const runtime::LoadedModel& model,
                                     ProgressCallback progress);

}  // namespace lemma::cli
