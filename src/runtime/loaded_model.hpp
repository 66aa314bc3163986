// SPDX-License-Identifier: Apache-2.0
// LoadedModel: a checkpoint turned into something that runs: plan, backend, program and tokenizer.
// The engine and the tools (logits, check, bench, eval, show) all load through this one door.
// A `StateSpace` is what stepping needs on top of it: pages and a prepared program. Neither is
// thread-safe; one step loop or one tool owns them.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.hpp"
#include "lemma/engine.hpp"
#include "model/plan.hpp"
#include "state/sequence.hpp"
#include "text/tokenizer.hpp"
#include "weights/checkpoint.hpp"

namespace lemma::runtime {

/// What `function` returns; an Error that does not name `path` yet gets it in front.
template <typename Function>
auto with_path(const std::filesystem::path& path, Function&& function) {
  try {
    return function();
  } catch (const Error& error) {
    if (std::string_view(error.what()).find(path.string()) != std::string_view::npos) throw;
    throw error.within(path.string());
  }
}

struct LoadOptions {
  BackendKind backend = BackendKind::kCpu;
  int threads = 0;
  NumericsMode numerics = NumericsMode::kFast;
  std::uint32_t context = 0;  ///< 0: the model's own, at most 4096
  ProgressCallback progress;
  std::filesystem::path draft_file{};  ///< with the model's draft blocks; empty: none
  bool drafts = false;                 ///< record the draft blocks too
  TokenizerOptions tokenizer{};
  /// A checkpoint without a tokenizer loads all the same; tokenizer() is then null.
  bool tokenizer_may_lack = false;
  bool repack = true;           ///< see EngineOptions
  std::uint64_t memory = 0;     ///< see EngineOptions
  std::uint32_t sequences = 1;  ///< whose states the memory has to hold too
};

class LoadedModel {
 public:
  /// Throws lemma::Error, with the path in its message.
  static std::unique_ptr<LoadedModel> open(const std::filesystem::path& path,
                                           const LoadOptions& options);
  /// A model that no file describes: a plan over weights that somebody has, without a tokenizer.
  static std::unique_ptr<LoadedModel> assemble(std::unique_ptr<const weights::Checkpoint> weights,
                                               model::Plan plan, const LoadOptions& options);

  const weights::Checkpoint& checkpoint() const noexcept { return *checkpoint_; }
  const model::Plan& plan() const noexcept { return plan_; }
  backend::Backend& backend() const noexcept { return *backend_; }
  const backend::Program& program() const noexcept { return program_; }
  /// One for each draft block; none unless LoadOptions asked for them.
  const std::vector<backend::Program>& draft_programs() const noexcept { return drafts_; }
  /// Null in an assembled model, and where LoadOptions allow it to lack.
  const std::shared_ptr<const text::Tokenizer>& tokenizer() const noexcept { return tokenizer_; }
  std::uint32_t context() const noexcept { return context_; }
  /// Bytes of experts that stay in the file because they would not fit in memory.
  std::uint64_t experts_in_file() const noexcept { return experts_in_file_; }
  /// Whether the backend reads the tensor's bytes where they are mapped, step by step.
  bool reads_in_file(const std::string& tensor) const;
  ModelInfo info() const;

 private:
  LoadedModel() = default;
  void bind(const LoadOptions& options);
  void record(backend::Backend& backend, bool drafts);
  std::unique_ptr<const weights::Checkpoint> checkpoint_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  model::Plan plan_;
  std::unique_ptr<backend::Backend> backend_;
  backend::Program program_;
  std::vector<backend::Program> drafts_;
  std::uint32_t context_ = 0;
  bool packs_ = false;
  std::vector<std::string> in_file_;  ///< tensors that are not packed though others are, sorted
  std::uint64_t experts_in_file_ = 0;
};

struct StateOptions {
  algorithm::RowFormat format = algorithm::RowFormat::kF16;
  std::uint32_t page_size = 128;  ///< at least; whole rows of every slot fit
  std::uint32_t sequences = 1;    ///< that may reach the whole context at the same time
  std::uint32_t max_rows = 512;
  std::uint32_t max_logit_rows = 0;  ///< rows of a step that want logits at most; 0: all of them
  /// Of a sequence's state, what snapshots of its blocks may take; at least two are kept.
  double snapshot_share = 0.1;
  std::span<backend::Observer* const> observers;
};

/// Pages for a number of sequences, and a program prepared to run over them: the model's, or one of
/// its draft blocks'.
class StateSpace {
 public:
  StateSpace(LoadedModel& model, const StateOptions& options)
      : StateSpace(model, model.program(), options) {}
  StateSpace(LoadedModel& model, const backend::Program& program, const StateOptions& options);

  state::PagePool& pool() noexcept { return *pool_; }
  const state::Layout& layout() const noexcept { return layout_; }
  backend::StateStore& store() noexcept { return *store_; }
  backend::Executable& executable() noexcept { return *executable_; }
  std::uint32_t max_rows() const noexcept { return max_rows_; }

 private:
  state::Layout layout_;
  std::unique_ptr<state::PagePool> pool_;
  std::unique_ptr<backend::StateStore> store_;
  std::unique_ptr<backend::Executable> executable_;
  std::uint32_t max_rows_ = 0;
};

}  // namespace lemma::runtime
