// SPDX-License-Identifier: Apache-2.0
// StepRunner: one step, from parts of sequences to committed lengths. It packs the parts into a
// backend::Step, reserves their pages, runs, and commits each part that succeeded; a part that
// failed leaves its sequence as it was. The step loop and every tool step through here. Owned by
// one thread; allocates only while it grows to the largest step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "runtime/loaded_model.hpp"
#include "state/sequence.hpp"

namespace lemma::runtime {

/// The next tokens of one sequence.
struct StepPart {
  state::Sequence* sequence = nullptr;
  std::span<const std::int32_t> tokens;
  state::TokenClass token_class = state::TokenClass::kEntered;
  enum class Logits : std::uint8_t { kNone, kLast, kAll } logits = Logits::kLast;
  /// Of a draft block: a row for each token, and how far the tokens stand ahead of their kv
  /// indices.
  std::span<const float> received = {};
  std::uint32_t ahead = 0;
};

/// What a step runs on; all of it must outlive the runner.
struct StepMachine {
  backend::Executable* executable = nullptr;
  backend::StateStore* store = nullptr;
  std::span<const backend::Program::Site> sites;  ///< by tensor, for messages
  std::uint32_t max_rows = 0;                     ///< of one step
  bool whole_prompts = false;                     ///< a sequence must come in one step
};

/// Makes the copies that are due in `sequence`.
void make_copies(state::Sequence& sequence, backend::StateStore& store);

class StepRunner {
 public:
  explicit StepRunner(const StepMachine& machine) : machine_(machine) {}
  StepRunner(const LoadedModel& model, StateSpace& space)
      : StepRunner(StepMachine{&space.executable(), &space.store(), model.program().tensors,
                               space.max_rows(), model.program().whole_prompts}) {}

  /// Runs all parts as one step of at most max_rows rows. Ids must be in the vocabulary and
  /// lengths within the context (the callers check requests). Throws kOutOfMemory, with nothing
  /// changed, when pages are short. What became of each part: results().
  void run(std::span<const StepPart> parts);

  /// Per part, of the last run.
  std::span<const backend::SegmentResult> results() const noexcept { return results_; }
  /// Throws the error that part `part` ended with, naming the site; returns if it is well.
  void check(std::size_t part) const;
  /// Logits [V] of row `row` of part `part` in the last run; the row must have asked for them.
  std::span<const float> logits(std::size_t part, std::size_t row) const;
  /// Rows that this runner has run in all.
  std::uint64_t rows_run() const noexcept { return rows_run_; }

 private:
  StepMachine machine_;
  std::vector<std::int32_t> tokens_;
  std::vector<algorithm::RopePosition> positions_;
  std::vector<float> received_;
  std::vector<backend::Segment> segments_;
  std::vector<std::uint32_t> logit_rows_;
  std::vector<backend::SegmentResult> results_;
  std::uint64_t rows_run_ = 0;
};

}  // namespace lemma::runtime
