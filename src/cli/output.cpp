// SPDX-License-Identifier: Apache-2.0
#include "cli/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/raise.hpp"

namespace lemma::cli {
namespace {

/// Reads `file` to its end; `name` is for the message.
std::string read_all(int file, const std::string& name) {
  std::string all;
  std::array<char, 65536> block;
  for (;;) {
    const ssize_t got = ::read(file, block.data(), block.size());
    if (got == 0) return all;
    if (got > 0) {
      all.append(block.data(), static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      base::raise(ErrorKind::kIo, "{}: cannot be read: {}", name, std::strerror(errno));
    }
  }
}

}  // namespace

void write_out(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (done >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(done));
    } else if (errno == EPIPE) {
      throw OutputClosed{};
    } else if (errno != EINTR) {
      base::raise(ErrorKind::kIo, "stdout cannot be written: {}", std::strerror(errno));
    }
  }
}

void write_err(std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t done = ::write(STDERR_FILENO, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
}

bool stdout_is_terminal() noexcept {
  return ::isatty(STDOUT_FILENO) == 1;
}
bool stderr_is_terminal() noexcept {
  return ::isatty(STDERR_FILENO) == 1;
}

std::string read_stdin() {
  return read_all(STDIN_FILENO, "standard input");
}

std::string read_file(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    base::raise(errno == ENOENT ? ErrorKind::kNotFound : ErrorKind::kIo, "{}: {}", path.string(),
                std::strerror(errno));
  }
  try {
    std::string all = read_all(file, path.string());
    ::close(file);
    return all;
  } catch (...) {
    ::close(file);
    throw;
  }
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 1024.0 && unit + 1 < kUnits.size(); ++unit) amount /= 1024.0;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

}  // namespace lemma::cli
