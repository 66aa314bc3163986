// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <atomic>
#include <memory>
#include <mutex>

namespace lemma::base {
namespace {

constexpr int kOff = static_cast<int>(LogLevel::kError) + 1;

struct State {
  std::atomic<int> least{kOff};
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;  // guarded by mutex; called without it
};

State& state() {
  // Never destroyed, so that threads which outlive main may still log.
  static State* const instance = new State;
  return *instance;
}

}  // namespace

std::string_view to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

void set_log_sink(LogSink sink, LogLevel least) {
  State& s = state();
  auto shared = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  const std::lock_guard lock(s.mutex);
  s.least.store(shared ? static_cast<int>(least) : kOff, std::memory_order_relaxed);
  s.sink = std::move(shared);
}

bool log_enabled(LogLevel level) noexcept {
  return static_cast<int>(level) >= state().least.load(std::memory_order_relaxed);
}

void log_message(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  State& s = state();
  std::shared_ptr<const LogSink> sink;
  {
    const std::lock_guard lock(s.mutex);
    sink = s.sink;
  }
  if (sink) (*sink)(level, message);
}

}  // namespace lemma::base
