// SPDX-License-Identifier: Apache-2.0
#include "eval/model_run.hpp"

#include <algorithm>
#include <utility>

#include "base/raise.hpp"

namespace lemma::eval {

algorithm::RowFormat row_format(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return algorithm::RowFormat::kF32;
    case KvFormat::kF16:
      return algorithm::RowFormat::kF16;
    case KvFormat::kBF16:
      return algorithm::RowFormat::kBF16;
    case KvFormat::kQ8:
      return algorithm::RowFormat::kQ8;
    case KvFormat::kFp8:
      return algorithm::RowFormat::kFp8;
  }
  base::raise(ErrorKind::kUsage, "kv: format {} does not exist", static_cast<int>(format));
}

std::uint32_t logits_rows(std::uint32_t vocabulary) noexcept {
  constexpr std::uint64_t kBytes = 64u << 20;
  const std::uint64_t rows = kBytes / (sizeof(float) * std::max<std::uint64_t>(vocabulary, 1));
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rows, 16, 512));
}

ModelRun::ModelRun(const ModelRunOptions& options)
    : options_(options),
      model_(runtime::LoadedModel::open(options.path,
                                        {.backend = options.backend,
                                         .threads = options.threads,
                                         .numerics = options.numerics,
                                         .context = options.context,
                                         .progress = options.progress,
                                         .draft_file = options.draft_file,
                                         .drafts = options.drafts,
                                         .tokenizer = options.tokenizer,
                                         .tokenizer_may_lack = options.tokenizer_may_lack,
                                         .repack = options.repack,
                                         .memory = options.memory})) {}

ModelRun::ModelRun(std::unique_ptr<runtime::LoadedModel> model, KvFormat kv)
    : model_(std::move(model)) {
  options_.kv = kv;
}

void ModelRun::prepare(std::span<backend::Observer* const> observers, std::uint32_t max_rows,
                       std::uint32_t max_logit_rows) {
  space_.reset();
  space_ = std::make_unique<runtime::StateSpace>(
      *model_, state_options(observers, max_rows, max_logit_rows));
}

runtime::StateOptions ModelRun::state_options(std::span<backend::Observer* const> observers,
                                              std::uint32_t max_rows,
                                              std::uint32_t max_logit_rows) const {
  return {.format = row_format(options_.kv),
          .sequences = 1,
          .max_rows = max_rows ? max_rows : logits_rows(model_->plan().vocabulary),
          .max_logit_rows = max_logit_rows,
          .observers = observers};
}

}  // namespace lemma::eval
