// SPDX-License-Identifier: Apache-2.0
// What a command line says about a model, as the engine takes it.
#pragma once

#include "cli/options.hpp"
#include "lemma/engine.hpp"

namespace lemma::cli {

/// Of a program with one user: one sequence at a time.
EngineOptions engine_options(const ModelOptions& model, ProgressCallback progress);

}  // namespace lemma::cli
