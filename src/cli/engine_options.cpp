// SPDX-License-Identifier: Apache-2.0
#include "cli/engine_options.hpp"

#include <utility>

namespace lemma::cli {

EngineOptions engine_options(const ModelOptions& model, ProgressCallback progress) {
  return {.backend = model.backend,
          .threads = model.threads,
          .kv = model.kv,
          .numerics = model.numerics,
          .context = model.context,
          .max_sequences = 1,
          .repack = !model.no_repack,
          .memory = model.memory,
          .tokenizer = {.pre_tokenizer = model.pre},
          .progress = std::move(progress)};
}

}  // namespace lemma::cli
