// SPDX-License-Identifier: Apache-2.0
// How much memory this process can still take without anything being swapped out: what the system
// reports as available, within the limits of the process's control groups.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lemma::base {

/// Where it is read from; tests point it at invented files.
struct MemoryFiles {
  std::filesystem::path meminfo = "/proc/meminfo";
  std::filesystem::path cgroup_folder = "/sys/fs/cgroup";
  std::filesystem::path own_cgroup = "/proc/self/cgroup";
};

/// In bytes. Pages of files count as available, since they can be dropped. Where nothing can be
/// read, the largest number.
std::uint64_t available_memory(const MemoryFiles& files = {});

}  // namespace lemma::base
