// SPDX-License-Identifier: Apache-2.0
// Job: what a client wants the step loop to do with one sequence, told as a chain of tasks. Only
// three tasks exist. A job never runs anything itself: the loop asks for its task, runs as many of
// the task's rows as fit into a step and tells the job what was committed. When the job is over the
// loop lets it give back its pages and then report to whoever waits.
//
//   start -> (task -> advance)* -> release -> report      all on the loop's thread
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lemma/error.hpp"
#include "lemma/tokenizer.hpp"
#include "state/sequence.hpp"

namespace lemma::runtime {

enum class TaskKind : std::uint8_t {
  kNewPrefill,     ///< prompt tokens of a new sequence
  kAppendPrefill,  ///< prompt tokens after a history
  kDecodeRound,    ///< one generated token
};

struct Task {
  TaskKind kind = TaskKind::kNewPrefill;
  std::span<const TokenId> tokens;  ///< not empty; valid until the job's next call

  state::TokenClass token_class() const noexcept {
    return kind == TaskKind::kDecodeRound ? state::TokenClass::kGenerated
                                          : state::TokenClass::kEntered;
  }
};

/// An error on its way from the loop's thread to the client's, which makes the exception there: so
/// that no exception object is shared between threads.
struct Failure {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
};

/// The failure that the exception being handled stands for.
Failure current_failure();

class Job {
 public:
  virtual ~Job() = default;

  /// Prepares the sequence. False: nothing has to run, the job is over. Throws lemma::Error.
  virtual bool start(state::PagePool& pool) = 0;
  /// Asked between steps, also while the job waits for its start. Safe to read from any thread.
  virtual bool cancel_requested() const noexcept { return false; }
  virtual Task task() const noexcept = 0;
  virtual state::Sequence& sequence() noexcept = 0;
  /// The first `rows` tokens of the task are committed. `logits` [V] are those of the task's last
  /// token, empty while tokens are left. False: the job is over. Throws lemma::Error.
  virtual bool advance(std::size_t rows, std::span<const float> logits) = 0;
  /// The job is over because of a failure or a cancellation, wherever it stands.
  virtual void fail(Failure failure) noexcept = 0;
  virtual void cancel() noexcept = 0;
  /// Gives back what nobody needs any more.
  virtual void release() noexcept = 0;
  /// Tells the client that the job is over. The last call.
  virtual void report() noexcept = 0;
};

}  // namespace lemma::runtime
