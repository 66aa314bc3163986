// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_bar.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/output.hpp"

namespace lemma::cli {
namespace {

constexpr auto kDelay = std::chrono::milliseconds(200);
constexpr int kCells = 32;
constexpr std::string_view kWipeLine = "\r\x1b[K";

}  // namespace

ProgressBar::ProgressBar() : terminal_(stderr_is_terminal()) {}

void ProgressBar::update(std::string_view stage, double fraction) {
  if (!terminal_) return;
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (stage != stage_) {
    wipe();
    stage_ = stage;
    begun_ = now;
  }
  if (fraction >= 1.0) {
    wipe();
    stage_.clear();
    return;
  }
  const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100.0);
  if (now - begun_ < kDelay || percent == shown_) return;
  const int full = percent * kCells / 100;
  write_err(
      fmt::format("\r{:<10} [{:#<{}}{:.<{}}] {:3}%", stage_, "", full, "", kCells - full, percent));
  shown_ = percent;
}

void ProgressBar::clear() {
  std::lock_guard lock(mutex_);
  wipe();
}

void ProgressBar::wipe() {
  if (shown_ >= 0) write_err(kWipeLine);
  shown_ = -1;
}

ProgressCallback ProgressBar::callback() {
  return [this](std::string_view stage, double fraction) { update(stage, fraction); };
}

}  // namespace lemma::cli
