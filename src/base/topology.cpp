// SPDX-License-Identifier: Apache-2.0
#include "base/topology.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/control_groups.hpp"

namespace lemma::base {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> read_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

std::optional<double> parse_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(value)) return std::nullopt;
  return value;
}

int read_int(const fs::path& path, int fallback) {
  const auto line = read_line(path);
  const auto value = line ? parse_number(*line) : std::nullopt;
  return value && *value >= 0 && *value < 1e9 ? static_cast<int>(*value) : fallback;
}

// A kernel list of processors such as "0-7,16,18-19".
std::set<int> parse_cpu_list(std::string_view text) {
  constexpr long kMaxCpus = 1 << 16;
  std::set<int> ids;
  const std::string list(text);
  const char* at = list.c_str();
  while (*at) {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    if (end == at) break;
    long last = first;
    if (*end == '-') {
      at = end + 1;
      last = std::strtol(at, &end, 10);
      if (end == at) break;
    }
    for (long id = std::max(first, 0L); id <= std::min(last, kMaxCpus); ++id) {
      ids.insert(static_cast<int>(id));
    }
    at = *end == ',' ? end + 1 : end;
    if (*end != ',') break;
  }
  return ids;
}

// quota / period of a control group in processors, or nothing where it is unlimited.
std::optional<double> quota_of(const fs::path& group) {
  if (const auto line = read_line(group / "cpu.max")) {  // version 2: "200000 100000" or "max ..."
    const std::size_t space = line->find(' ');
    const auto quota = parse_number(*line);
    const auto period =
        space == std::string::npos ? std::nullopt : parse_number(line->substr(space + 1));
    if (quota && period && *quota > 0 && *period > 0) return *quota / *period;
    return std::nullopt;
  }
  const auto quota = read_line(group / "cpu.cfs_quota_us");  // version 1: -1 is unlimited
  const auto period = read_line(group / "cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  const auto q = parse_number(*quota), p = parse_number(*period);
  if (q && p && *q > 0 && *p > 0) return *q / *p;
  return std::nullopt;
}

// The tightest quota of the groups that hold this process.
std::optional<double> read_quota(const MachineFiles& files) {
  std::optional<double> tightest;
  visit_control_groups(files.cgroup_folder, files.own_cgroup, "cpu", [&](const fs::path& group) {
    const auto quota = quota_of(group);
    if (quota && (!tightest || *quota < *tightest)) tightest = quota;
  });
  return tightest;
}

}  // namespace

ThreadDefaults default_threads(const Machine& machine) {
  // Boost clocks and calibration make equal cores differ by some per cent; kinds of cores differ by
  // a quarter and more.
  constexpr double kSameKind = 0.8;
  int fastest = 0;
  for (const Cpu& cpu : machine.cpus) fastest = std::max(fastest, cpu.capacity);
  std::set<std::pair<int, int>> cores, fast_cores;
  std::set<int> nodes;
  ThreadDefaults result;
  for (const Cpu& cpu : machine.cpus) {
    cores.emplace(cpu.package, cpu.core);
    if (cpu.capacity < kSameKind * fastest) continue;
    fast_cores.emplace(cpu.package, cpu.core);
    nodes.insert(cpu.node);
    result.kept_to.push_back(cpu.id);
  }
  if (fast_cores.size() == cores.size()) result.kept_to.clear();
  const int all = std::max(1, static_cast<int>(cores.size()));
  const int fast = std::max(1, static_cast<int>(fast_cores.size()));
  int limit = all;
  if (machine.quota_cpus && *machine.quota_cpus < all) {
    limit = std::max(1, static_cast<int>(*machine.quota_cpus));
  }
  result.decode = std::min(fast, limit);
  result.prefill = std::min(all, limit);
  std::string from = fast < all ? fmt::format("kept to {} fast cores of {}", fast, all)
                     : all == 1 ? std::string("1 core")
                                : fmt::format("{} cores", all);
  if (static_cast<int>(machine.cpus.size()) > all) {
    from += fmt::format(" ({} hardware threads)", machine.cpus.size());
  }
  if (nodes.size() > 1) from += fmt::format(" on {} memory nodes", nodes.size());
  const char* plural = result.decode == 1 ? "" : "s";
  result.reason = limit < fast
                      ? fmt::format("{} thread{}: CPU quota of {:g} on {}", result.decode, plural,
                                    *machine.quota_cpus, from)
                      : fmt::format("{} thread{}: one per core, {}", result.decode, plural, from);
  return result;
}

namespace {

// The node of each processor that a node lists.
std::map<int, int> read_nodes(const MachineFiles& files) {
  constexpr int kMaxNodes = 1024;
  std::map<int, int> node_of;
  std::set<int> online;
  if (const auto list = read_line(files.node_folder / "online")) online = parse_cpu_list(*list);
  for (const int node : online) {
    if (node >= kMaxNodes) break;
    const auto list = read_line(files.node_folder / fmt::format("node{}", node) / "cpulist");
    if (!list) continue;
    for (const int cpu : parse_cpu_list(*list)) node_of.emplace(cpu, node);
  }
  return node_of;
}

}  // namespace

Machine read_machine(const std::vector<int>& allowed, const MachineFiles& files) {
  // Intel hybrids list their kinds of cores; elsewhere the kernel states capacities up to 1024.
  std::set<int> performance, efficiency;
  if (const auto list = read_line(files.devices_folder / "cpu_core" / "cpus")) {
    performance = parse_cpu_list(*list);
  }
  if (const auto list = read_line(files.devices_folder / "cpu_atom" / "cpus")) {
    efficiency = parse_cpu_list(*list);
  }
  const bool hybrid = !performance.empty() && !efficiency.empty();
  const std::map<int, int> nodes = read_nodes(files);
  Machine machine;
  for (int id : allowed) {
    const fs::path folder = files.cpu_folder / fmt::format("cpu{}", id);
    Cpu cpu;
    cpu.id = id;
    // Where the topology is unreadable, the id keeps processors apart.
    cpu.core = read_int(folder / "topology" / "core_id", id);
    cpu.package = read_int(folder / "topology" / "physical_package_id", 0);
    cpu.capacity =
        hybrid ? (performance.contains(id) ? 1024 : 512) : read_int(folder / "cpu_capacity", 0);
    const auto node = nodes.find(id);
    cpu.node = node != nodes.end() ? node->second : 0;
    machine.cpus.push_back(cpu);
  }
  machine.quota_cpus = read_quota(files);
  return machine;
}

std::vector<int> allowed_cpus() {
  std::vector<int> ids;
  // The kernel's own mask may be wider than cpu_set_t's 1024 bits; then the call says EINVAL.
  for (int bits = CPU_SETSIZE; bits <= (1 << 16); bits *= 2) {
    cpu_set_t* const mask = CPU_ALLOC(static_cast<std::size_t>(bits));
    if (!mask) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(bits));
    CPU_ZERO_S(bytes, mask);
    if (sched_getaffinity(0, bytes, mask) == 0) {
      for (int id = 0; id < bits; ++id) {
        if (CPU_ISSET_S(static_cast<std::size_t>(id), bytes, mask)) ids.push_back(id);
      }
    }
    CPU_FREE(mask);
    if (!ids.empty()) return ids;
  }
  const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int id = 0; id < count; ++id) ids.push_back(id);
  return ids;
}

int allowed_cpu_count() noexcept {
  try {
    return static_cast<int>(allowed_cpus().size());
  } catch (...) {
    return 1;  // no memory for the list: the cautious answer
  }
}

}  // namespace lemma::base
