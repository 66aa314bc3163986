// SPDX-License-Identifier: Apache-2.0
// ModelRun: a loaded model with the state of one sequence, as the offline tools (logits, check,
// bench, eval, show) run it. Observers join when the state is made. Owned by one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "algorithm/row_formats.hpp"
#include "lemma/engine.hpp"
#include "runtime/loaded_model.hpp"

namespace lemma::eval {

struct ModelRunOptions {
  std::filesystem::path path;
  BackendKind backend = BackendKind::kCpu;
  int threads = 0;
  KvFormat kv = KvFormat::kF32;
  NumericsMode numerics = NumericsMode::kFast;
  std::uint32_t context = 0;  ///< 0: the model's own, at most 4096
  ProgressCallback progress{};
  std::filesystem::path draft_file{};  ///< with the model's draft blocks; empty: none
  bool drafts = false;                 ///< make the draft blocks ready too
  TokenizerOptions tokenizer{};
  bool tokenizer_may_lack = false;  ///< see runtime::LoadOptions
  bool repack = true;               ///< see EngineOptions
  std::uint64_t memory = 0;         ///< see EngineOptions
};

algorithm::RowFormat row_format(KvFormat format);

/// Rows of a step such that the logits of all of them stay small; the cut does not change the bits.
std::uint32_t logits_rows(std::uint32_t vocabulary) noexcept;

class ModelRun {
 public:
  explicit ModelRun(const ModelRunOptions& options);
  /// Of a model that is there already.
  explicit ModelRun(std::unique_ptr<runtime::LoadedModel> model, KvFormat kv = KvFormat::kF32);

  /// Makes the state anew, for steps of at most `max_rows` rows (0: logits_rows()), of which
  /// `max_logit_rows` want logits (0: all), with these observers, which must outlive it.
  void prepare(std::span<backend::Observer* const> observers = {}, std::uint32_t max_rows = 0,
               std::uint32_t max_logit_rows = 0);

  /// What prepare() makes a state of.
  runtime::StateOptions state_options(std::span<backend::Observer* const> observers = {},
                                      std::uint32_t max_rows = 0,
                                      std::uint32_t max_logit_rows = 0) const;

  runtime::LoadedModel& model() noexcept { return *model_; }
  const runtime::LoadedModel& model() const noexcept { return *model_; }
  /// Only after prepare().
  runtime::StateSpace& space() noexcept { return *space_; }

 private:
  ModelRunOptions options_;
  std::unique_ptr<runtime::LoadedModel> model_;
  std::unique_ptr<runtime::StateSpace> space_;
};

}  // namespace lemma::eval
