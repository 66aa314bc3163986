// SPDX-License-Identifier: Apache-2.0
#include "base/available_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "base/control_groups.hpp"

namespace lemma::base {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

/// The number that a file holds; none for "max" and for what is no file.
std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream in(path);
  std::uint64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

/// The number behind a word at the start of a line: "inactive_file 4096", "MemAvailable: 12 kB".
std::uint64_t number_of(const fs::path& path, const std::string& name) {
  std::ifstream in(path);
  std::string word;
  for (std::uint64_t number = 0; in >> word >> number;) {
    if (word == name) return number;
    std::getline(in, word);
  }
  return 0;
}

/// What a group may still take: its limit less its use, of which pages of files can be dropped.
std::uint64_t left_in(const fs::path& group, const char* limit_name, const char* use_name,
                      const char* prefix) {
  const auto limit = read_number(group / limit_name), use = read_number(group / use_name);
  if (!limit || !use) return kUnlimited;
  const fs::path statistics = group / "memory.stat";
  const std::uint64_t files = number_of(statistics, std::string(prefix) + "inactive_file") +
                              number_of(statistics, std::string(prefix) + "active_file");
  const std::uint64_t held = *use - std::min(*use, files);
  return *limit - std::min(*limit, held);
}

}  // namespace

std::uint64_t available_memory(const MemoryFiles& files) {
  std::uint64_t left = kUnlimited;
  if (const std::uint64_t kib = number_of(files.meminfo, "MemAvailable:"); kib > 0)
    left = kib * 1024;
  visit_control_groups(files.cgroup_folder, files.own_cgroup, "memory", [&](const fs::path& group) {
    left = std::min(left, left_in(group, "memory.max", "memory.current", ""));
    left =
        std::min(left, left_in(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"));
  });
  return left;
}

}  // namespace lemma::base
