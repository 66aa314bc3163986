// SPDX-License-Identifier: Apache-2.0
// Draft evaluation: known tokens through a model and its draft blocks, with the logits of both. Row
// i of block k has token i + 1 + k and what the model, or the block before, handed on for row i;
// its logits are of the token after. So a block's first row is its sequence's first, and the
// model's last rows have no draft. By lemma's promise the steps do not change the bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/evaluation.hpp"
#include "runtime/loaded_model.hpp"
#include "state/sequence.hpp"

namespace lemma::runtime {

/// Keeps the rows that a program hands on to a draft block, of the last step.
class HandedOnRows final : public backend::Observer {
 public:
  explicit HandedOnRows(const backend::Program& program);

  bool wants(const backend::Program::Site& site) override { return site.name == name_; }
  void observe(std::int32_t tensor, const backend::Program::Site& site, const backend::Step& step,
               std::span<float> rows) override;
  std::span<const float> rows() const noexcept { return rows_; }  ///< [T, width]
  std::size_t width() const noexcept { return width_; }

 private:
  const std::string name_;
  const std::size_t width_;
  std::vector<float> rows_;
};

/// One draft block with the state of one sequence.
class DraftRun {
 public:
  /// The model must have been loaded with its draft blocks and outlive the run.
  DraftRun(LoadedModel& model, std::size_t block, const StateOptions& options);

  /// Runs the next rows, at most options.max_rows: `tokens`, each with its row of `received`.
  /// Throws what the step failed with.
  void run(std::span<const std::int32_t> tokens, std::span<const float> received,
           state::TokenClass token_class);
  std::span<const float> logits(std::size_t row) const { return runner_.logits(0, row); }
  std::span<const float> handed_on() const noexcept { return rows_.rows(); }
  std::size_t width() const noexcept { return rows_.width(); }
  std::size_t rows_run() const noexcept { return sequence_.length(); }

 private:
  HandedOnRows rows_;
  backend::Observer* const observer_ = &rows_;
  StateSpace space_;
  state::Sequence sequence_;
  StepRunner runner_;
  const std::uint32_t ahead_;
};

/// Called for each row of a block in ascending order; `position` is that of its token.
using DraftSink =
    std::function<void(std::size_t block, std::uint32_t position, std::span<const float> logits)>;

/// evaluate(), and with it the model's draft blocks over the same tokens. `options` is for the
/// model's state and for each block's; its observers see the model. Throws kUnsupported where the
/// model has no draft blocks.
void evaluate_with_drafts(LoadedModel& model, const StateOptions& options,
                          std::span<const std::int32_t> tokens, const Chunking& chunking,
                          const LogitsSink& sink, const DraftSink& draft_sink);

}  // namespace lemma::runtime
