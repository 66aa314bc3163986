// SPDX-License-Identifier: Apache-2.0
// What a command line says about a model, as the offline tools take it.
#pragma once

#include "cli/options.hpp"
#include "eval/model_run.hpp"
#include "lemma/engine.hpp"

namespace lemma::cli {

eval::ModelRunOptions model_run_options(const ModelOptions& model, ProgressCallback progress);

}  // namespace lemma::cli
