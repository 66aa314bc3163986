// SPDX-License-Identifier: Apache-2.0
// Interruption: notices from outside that a running generation should end: Ctrl-C (SIGINT),
// SIGTERM, or a reader of stdout that is gone, which is seen even while there is nothing to write.
// The callback is called once, on a thread of its own. A second Ctrl-C ends the process at once
// where one is not to be ignored (a chat, whose turn it ends). At most one Interruption exists at a
// time.
#pragma once

#include <functional>
#include <thread>

namespace lemma::cli {

class Interruption {
 public:
  enum class Cause { kSignal, kOutputClosed };
  /// What a second Ctrl-C does; SIGTERM is caught only where it ends the process.
  enum class Again { kEndsProcess, kIgnored };
  /// Throws Error(kIo) where the system gives no pipe.
  explicit Interruption(std::function<void(Cause)> callback, Again again = Again::kEndsProcess);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

 private:
  void watch() const;

  const std::function<void(Cause)> callback_;
  const Again again_;
  int pipe_[2] = {-1, -1};  ///< the signal handler and the destructor write, the thread reads
  std::thread thread_;
};

}  // namespace lemma::cli
