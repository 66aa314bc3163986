// SPDX-License-Identifier: Apache-2.0
// ProgressBar: one line on stderr while something takes long, and nothing where stderr is no
// terminal. It appears after a fifth of a second, so that quick work shows none, and is wiped when
// its stage is complete, or by clear() before other text. Thread-safe.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

#include "lemma/engine.hpp"

namespace lemma::cli {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::string_view stage, double fraction);
  void clear();
  /// A callback that updates this bar, which must outlive it.
  ProgressCallback callback();

 private:
  using Clock = std::chrono::steady_clock;
  void wipe();

  const bool terminal_;
  std::mutex mutex_;
  std::string stage_;  ///< guarded by mutex_, like all that follows
  Clock::time_point begun_;
  int shown_ = -1;  ///< percent on the screen; -1: nothing
};

}  // namespace lemma::cli
