// SPDX-License-Identifier: Apache-2.0
// Completion: one thread waits until another says that something is over, and how. What the other
// thread wrote before is visible after the wait. One wait and one call of done.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "lemma/error.hpp"
#include "runtime/job.hpp"

namespace lemma::runtime {

class Completion {
 public:
  void done(std::optional<Failure> failure = {}) noexcept {
    // The waiter may destroy this as soon as it sees `over_`, so it is woken under the lock.
    std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
    over_ = true;
    changed_.notify_all();
  }

  /// Throws the failure.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_; });
    if (failure_) throw Error(failure_->kind, failure_->message);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;               // under mutex_
  std::optional<Failure> failure_;  // under mutex_
};

}  // namespace lemma::runtime
