// SPDX-License-Identifier: Apache-2.0
// Topology: which processors this process may use, and how many threads are worth starting on
// them. Decoding waits for its slowest thread at every barrier and is bound by memory, so it takes
// one thread per physical core of the fastest kind; prefill shares out work in small pieces and
// gains from the slower cores as well. Both stay within the affinity mask and the CPU quota of the
// control group. The rule works on a plain description of a machine, so tests can invent machines.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lemma::base {

/// One logical processor that the process may run on.
struct Cpu {
  int id = 0;
  int package = 0;
  int core = 0;      ///< the same for the hyper-threads of a core, unique within its package
  int capacity = 0;  ///< relative speed of the core's kind, larger is faster; 0 where unknown
  int node = 0;      ///< of memory that is near
};

struct Machine {
  std::vector<Cpu> cpus;             ///< online and in the affinity mask
  std::optional<double> quota_cpus;  ///< processors' worth of time allowed, e.g. 2.5
};

struct ThreadDefaults {
  int decode = 1;
  int prefill = 1;
  /// Where threads must be kept off slower cores: the ids of the processors that are left. Else
  /// empty: the system places threads, and shares cores with other programs better than we could.
  std::vector<int> kept_to;
  std::string reason;  ///< one line: "8 threads: one per core, kept to 8 fast cores of 20"
};

/// The default thread counts for `machine`; at least 1 each.
ThreadDefaults default_threads(const Machine& machine);

/// Where the description of this machine is read from; tests point it at invented files.
struct MachineFiles {
  std::filesystem::path cpu_folder = "/sys/devices/system/cpu";
  std::filesystem::path devices_folder = "/sys/devices";  ///< cpu_core/, cpu_atom/ on hybrids
  std::filesystem::path cgroup_folder = "/sys/fs/cgroup";
  std::filesystem::path own_cgroup = "/proc/self/cgroup";
  std::filesystem::path node_folder = "/sys/devices/system/node";  ///< node0/cpulist, ...
};

/// Describes the processors `allowed` (logical ids). What cannot be read is left at its default,
/// each processor then counting as a core of its own.
Machine read_machine(const std::vector<int>& allowed, const MachineFiles& files = {});

/// The logical ids in this process's affinity mask, ascending; never empty.
std::vector<int> allowed_cpus();

/// The number of processors in this process's affinity mask.
int allowed_cpu_count() noexcept;

}  // namespace lemma::base
