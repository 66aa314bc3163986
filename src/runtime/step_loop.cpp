// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_loop.hpp"

#include <utility>

#include "base/check.hpp"
#include "base/raise.hpp"
#include "runtime/schedule.hpp"

namespace lemma::runtime {

StepLoop::StepLoop(const StepMachine& machine, state::PagePool& pool, std::uint32_t max_sequences)
    : pool_(pool),
      max_rows_(machine.max_rows),
      max_sequences_(max_sequences),
      whole_prompts_(machine.whole_prompts),
      runner_(machine) {
  LEMMA_CHECK(max_sequences >= 1 && machine.max_rows >= max_sequences);
}

void StepLoop::submit(std::shared_ptr<Job> job) {
  {
    std::lock_guard lock(mutex_);
    if (!stop_) {
      inbox_.push_back(std::move(job));
      posted_.notify_one();
      return;
    }
  }
  job->cancel();
  job->report();
}

void StepLoop::call(std::function<void()> function) {
  std::lock_guard lock(mutex_);
  calls_.push_back(std::move(function));
  posted_.notify_one();
}

void StepLoop::wake() noexcept {
  std::lock_guard lock(mutex_);
  wake_ = true;
  posted_.notify_one();
}

void StepLoop::stop() noexcept {
  std::lock_guard lock(mutex_);
  stop_ = true;
  posted_.notify_one();
}

void StepLoop::run() noexcept {
  while (take_posted()) {
    drop_cancelled();
    admit();
    if (!active_.empty()) step();
  }
  end_all();
}

/// Sleeps until there is something to do, then takes it. False: the loop is to end.
bool StepLoop::take_posted() {
  std::vector<std::shared_ptr<Job>> jobs;
  std::vector<std::function<void()>> calls;
  bool stop = false;
  {
    std::unique_lock lock(mutex_);
    posted_.wait(lock, [this] {
      return stop_ || wake_ || !inbox_.empty() || !calls_.empty() || !active_.empty() ||
             !waiting_.empty();
    });
    jobs.swap(inbox_);
    calls.swap(calls_);
    wake_ = false;
    stop = stop_;
  }
  for (const auto& function : calls) function();
  if (!calls.empty()) publish();
  for (auto& job : jobs) waiting_.push_back(std::move(job));
  return !stop;
}

void StepLoop::drop_cancelled() {
  const auto dropped = [this](Job& job) {
    if (!job.cancel_requested()) return false;
    job.cancel();
    end(job);
    return true;
  };
  std::erase_if(waiting_, [&](const auto& job) { return dropped(*job); });
  std::erase_if(active_, [&](const Active& active) { return dropped(*active.job); });
}

void StepLoop::admit() {
  while (!waiting_.empty() && active_.size() < max_sequences_) {
    const std::shared_ptr<Job> job = std::move(waiting_.front());
    waiting_.pop_front();
    bool has_task = false;
    try {
      if (job->start(pool_)) {
        check_whole(job->task());
        has_task = true;
      }
    } catch (...) {
      job->fail(current_failure());
    }
    if (has_task) {
      active_.push_back({job, false});
    } else {
      end(*job);
    }
  }
}

/// Where rows look ahead, a prompt that came in two steps would miss what follows.
void StepLoop::check_whole(const Task& task) const {
  if (!whole_prompts_) return;
  if (task.kind != TaskKind::kNewPrefill) {
    base::raise(ErrorKind::kUnsupported,
                "the rows of this model see the whole prompt: nothing can be appended to it");
  }
  if (task.tokens.size() > max_rows_) {
    base::raise(ErrorKind::kContextFull,
                "the prompt has {} tokens, but this model reads a prompt in one step, and a step "
                "holds {} rows (step_rows)",
                task.tokens.size(), max_rows_);
  }
}

void StepLoop::step() {
  parts_.clear();
  parts_jobs_.clear();
  std::vector<Task> tasks;
  for (const Active& active : active_) tasks.push_back(active.job->task());
  for (const Share& share : share_rows(tasks, max_rows_, whole_prompts_)) {
    pack(share.job, tasks[share.job], share.rows);
  }
  if (!parts_.empty()) run_parts();
  publish();
  std::erase_if(active_, [this](Active& active) {
    if (active.over) end(*active.job);
    return active.over;
  });
}

void StepLoop::run_parts() {
  try {
    runner_.run(parts_);
  } catch (...) {
    const Failure failure = current_failure();
    for (const std::size_t index : parts_jobs_) {
      active_[index].job->fail(failure);
      active_[index].over = true;
    }
    return;
  }
  for (std::size_t part = 0; part < parts_.size(); ++part) settle(part);
}

/// Adds `rows` tokens of a job's task to the step. The pages are reserved here, job by job, so that
/// a job for which there are none fails alone.
void StepLoop::pack(std::size_t index, const Task& task, std::uint32_t rows) {
  Active& active = active_[index];
  try {
    state::Sequence& sequence = active.job->sequence();
    sequence.reserve(rows);
    const bool last = rows == task.tokens.size();
    parts_.push_back({&sequence, task.tokens.first(rows), task.token_class(),
                      last ? StepPart::Logits::kLast : StepPart::Logits::kNone});
    parts_jobs_.push_back(index);
  } catch (...) {
    active.job->fail(current_failure());
    active.over = true;
  }
}

/// Tells a job what became of its rows.
void StepLoop::settle(std::size_t part) {
  Active& active = active_[parts_jobs_[part]];
  const std::size_t rows = parts_[part].tokens.size();
  try {
    runner_.check(part);
    std::span<const float> logits;
    if (parts_[part].logits == StepPart::Logits::kLast) logits = runner_.logits(part, rows - 1);
    active.over = !active.job->advance(rows, logits);
  } catch (...) {
    active.job->fail(current_failure());
    active.over = true;
  }
}

/// Pages are given back, and counted, before the client learns that the job is over.
void StepLoop::end(Job& job) noexcept {
  job.release();
  publish();
  job.report();
}

void StepLoop::end_all() noexcept {
  for (Active& active : active_) waiting_.push_back(std::move(active.job));
  active_.clear();
  for (const auto& job : waiting_) {
    job->cancel();
    end(*job);
  }
  waiting_.clear();
}

void StepLoop::publish() noexcept {
  state_used_.store(pool_.used_bytes(), std::memory_order_relaxed);
}

}  // namespace lemma::runtime
