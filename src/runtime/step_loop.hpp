// SPDX-License-Identifier: Apache-2.0
// StepLoop: the one thread that steps a model. Jobs wait in order of arrival; up to
// `max_sequences` of them run at the same time, packed into steps of at most `max_rows` rows. It
// alone touches pool, sequences, store and executable. Clients post work and are told when it is
// over; no lock is held while a step runs, and without work the loop sleeps.
//
// A sequence's length moves only after a step: rows are reserved, run, then committed, or abandoned
// where the backend reports that they failed. What fails for one job ends that job alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "runtime/job.hpp"
#include "runtime/step_runner.hpp"
#include "state/page_pool.hpp"

namespace lemma::runtime {

class StepLoop {
 public:
  /// At least one sequence, and rows for all of them in one step (LEMMA_CHECK). The pool must
  /// outlive the loop.
  StepLoop(const StepMachine& machine, state::PagePool& pool, std::uint32_t max_sequences);

  // From any thread.

  /// Queues a job. After stop() the job is cancelled at once.
  void submit(std::shared_ptr<Job> job);
  /// Runs `function`, which must not throw, on the loop's thread between two steps.
  void call(std::function<void()> function);
  /// Makes the loop look at cancellations now.
  void wake() noexcept;
  /// Makes run() return after the current step; whatever is left is cancelled.
  void stop() noexcept;
  /// Bytes of pages in use after the last change.
  std::uint64_t state_used() const noexcept { return state_used_.load(std::memory_order_relaxed); }

  /// The loop itself; returns after stop(). Called once, on a thread of its own.
  void run() noexcept;

 private:
  struct Active {
    std::shared_ptr<Job> job;
    bool over = false;
  };

  bool take_posted();
  void drop_cancelled();
  void admit();
  void check_whole(const Task& task) const;
  void step();
  void pack(std::size_t index, const Task& task, std::uint32_t rows);
  void run_parts();
  void settle(std::size_t part);
  void end(Job& job) noexcept;
  void end_all() noexcept;
  void publish() noexcept;

  state::PagePool& pool_;
  const std::uint32_t max_rows_, max_sequences_;
  const bool whole_prompts_;

  // Owned by the loop's thread.
  std::deque<std::shared_ptr<Job>> waiting_;
  std::vector<Active> active_;
  StepRunner runner_;
  std::vector<StepPart> parts_;          ///< of the step being made
  std::vector<std::size_t> parts_jobs_;  ///< index into active_, by part

  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<std::shared_ptr<Job>> inbox_;   // under mutex_
  std::vector<std::function<void()>> calls_;  // under mutex_
  bool wake_ = false;                         // under mutex_
  bool stop_ = false;                         // under mutex_

  std::atomic<std::uint64_t> state_used_{0};
};

}  // namespace lemma::runtime
