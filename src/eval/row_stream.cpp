// SPDX-License-Identifier: Apache-2.0
#include "eval/row_stream.hpp"

#include <algorithm>
#include <utility>

namespace lemma::eval {

RowStream::RowStream(const backend::Program& program, std::vector<bool> wanted, std::size_t budget)
    : program_(program),
      wanted_(std::move(wanted)),
      budget_(budget),
      rows_(program.tensors.size()),
      fates_(program.tensors.size(), Fate::kAwaited) {}

void RowStream::begin() {
  const std::lock_guard lock(mutex_);
  for (std::vector<float>& rows : rows_) rows = {};
  std::fill(fates_.begin(), fates_.end(), Fate::kAwaited);
  held_ = 0;
  ended_ = closed_ = false;
  awaited_ = -1;
}

void RowStream::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void RowStream::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool RowStream::wants(const backend::Program::Site& site) {
  for (std::size_t i = 0; i < wanted_.size(); ++i)
    if (program_.tensors[i].name == site.name) return wanted_[i];
  return false;
}

void RowStream::observe(std::int32_t tensor, const backend::Program::Site&, const backend::Step&,
                        std::span<float> rows) {
  const std::size_t bytes = rows.size_bytes();
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return held_ == 0 || held_ + bytes <= budget_ || awaited_ >= 0 || closed_; });
  const auto id = static_cast<std::size_t>(tensor);
  if (closed_ || fates_[id] == Fate::kDropped) return;
  rows_[id].assign(rows.begin(), rows.end());
  fates_[id] = Fate::kHeld;
  held_ += bytes;
  most_held_ = std::max(most_held_, held_);
  if (awaited_ == tensor) awaited_ = -1;  // from here on the budget holds again
  changed_.notify_all();
}

std::span<const float> RowStream::rows(std::int32_t tensor) {
  const auto id = static_cast<std::size_t>(tensor);
  std::unique_lock lock(mutex_);
  if (fates_[id] == Fate::kAwaited) {
    awaited_ = tensor;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return fates_[id] != Fate::kAwaited || ended_; });
  awaited_ = -1;
  return rows_[id];
}

void RowStream::drop(std::int32_t tensor) {
  const auto id = static_cast<std::size_t>(tensor);
  const std::lock_guard lock(mutex_);
  if (fates_[id] == Fate::kHeld) held_ -= rows_[id].size() * sizeof(float);
  rows_[id] = {};
  fates_[id] = Fate::kDropped;
  changed_.notify_all();
}

}  // namespace lemma::eval
