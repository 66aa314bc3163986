// SPDX-License-Identifier: Apache-2.0
// Logging: library code says something, the application decides where it goes. Without a sink
// nothing is formatted and nothing printed; the library itself never writes to a stream. Messages
// are one line without a line end. Thread-safe; a sink may be called from several threads at once.
//
//   base::set_log_sink([](base::LogLevel level, std::string_view text) { ... });
//   base::log(base::LogLevel::kInfo, "{} tensors in {} files", tensors, files);
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>
#include <utility>

namespace lemma::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// "debug", "info", "warning", "error".
std::string_view to_string(LogLevel level) noexcept;

using LogSink = std::function<void(LogLevel level, std::string_view message)>;

/// Sends messages of `least` and above to `sink` from now on; an empty sink turns logging off.
void set_log_sink(LogSink sink, LogLevel least = LogLevel::kInfo);

/// True if a message of `level` would reach a sink.
bool log_enabled(LogLevel level) noexcept;

/// Hands a finished message to the sink, if there is one for `level`.
void log_message(LogLevel level, std::string_view message);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_message(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lemma::base
