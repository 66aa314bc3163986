// SPDX-License-Identifier: Apache-2.0
#include "cli/eval_run_options.hpp"

#include <utility>

namespace lemma::cli {

eval::ModelRunOptions model_run_options(const ModelOptions& model, ProgressCallback progress) {
  return {.path = model.path,
          .backend = model.backend,
          .threads = model.threads,
          .kv = model.kv,
          .numerics = model.numerics,
          .context = model.context,
          .progress = std::move(progress),
          .tokenizer = {.pre_tokenizer = model.pre},
          .repack = !model.no_repack,
          .memory = model.memory};
}

}  // namespace lemma::cli
