// SPDX-License-Identifier: Apache-2.0
#include "base/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace lemma::base {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Adds `cores` cores of one kind with `threads` hardware threads each.
void add_cores(Machine& machine, int cores, int threads, int capacity, int package = 0) {
  for (int i = 0; i < cores; ++i) {
    const int core = static_cast<int>(machine.cpus.size());
    for (int t = 0; t < threads; ++t) {
      machine.cpus.push_back({static_cast<int>(machine.cpus.size()), package, core, capacity});
    }
  }
}

TEST(DefaultThreads, LeaveTheSlowCoresOfAHybridOutOfDecoding) {
  Machine no_smt;
  add_cores(no_smt, 8, 1, 1024);
  add_cores(no_smt, 12, 1, 600);
  EXPECT_EQ(default_threads(no_smt).decode, 8);
  EXPECT_EQ(default_threads(no_smt).prefill, 20);
  EXPECT_THAT(default_threads(no_smt).reason, HasSubstr("8 fast cores of 20"));

  Machine smt;
  add_cores(smt, 8, 2, 1024);
  add_cores(smt, 16, 1, 600);
  EXPECT_EQ(default_threads(smt).decode, 8);
  EXPECT_EQ(default_threads(smt).prefill, 24);
}

TEST(DefaultThreads, CountCoresAndNotHardwareThreadsOnTwoPackages) {
  Machine machine;
  add_cores(machine, 18, 2, 1024, 0);
  add_cores(machine, 18, 2, 1024, 1);
  for (Cpu& cpu : machine.cpus) cpu.core %= 36;  // core numbers repeat in the second package
  EXPECT_EQ(default_threads(machine).decode, 36);
  EXPECT_EQ(default_threads(machine).prefill, 36);
  EXPECT_THAT(default_threads(machine).reason, HasSubstr("72 hardware threads"));
}

TEST(DefaultThreads, StayWithinTheAffinityMask) {
  Machine machine;
  add_cores(machine, 3, 1, 1024);
  EXPECT_EQ(default_threads(machine).decode, 3);
}

TEST(DefaultThreads, StayWithinTheQuota) {
  Machine machine;
  add_cores(machine, 16, 2, 1024);
  machine.quota_cpus = 3.0;
  EXPECT_EQ(default_threads(machine).decode, 3);
  EXPECT_EQ(default_threads(machine).prefill, 3);
  EXPECT_THAT(default_threads(machine).reason, HasSubstr("quota of 3"));
  machine.quota_cpus = 2.9;
  EXPECT_EQ(default_threads(machine).decode, 2);
  machine.quota_cpus = 0.5;
  EXPECT_EQ(default_threads(machine).decode, 1);
  machine.quota_cpus = 64.0;
  EXPECT_EQ(default_threads(machine).decode, 16);
  EXPECT_THAT(default_threads(machine).reason, Not(HasSubstr("quota")));
}

TEST(DefaultThreads, AreOneOnOneCoreAndOnAnUnknownMachine) {
  Machine machine;
  add_cores(machine, 1, 1, 0);
  EXPECT_EQ(default_threads(machine).decode, 1);
  EXPECT_THAT(default_threads(machine).reason, HasSubstr("1 thread:"));
  EXPECT_EQ(default_threads({}).decode, 1);
}

TEST(DefaultThreads, CountSlightlyUnequalCoresAsOneKind) {
  Machine machine;
  add_cores(machine, 2, 1, 1024);
  add_cores(machine, 6, 1, 980);
  EXPECT_EQ(default_threads(machine).decode, 8);
}

class ReadMachineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "topology_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    files_ = {folder_ / "cpu", folder_ / "devices", folder_ / "cgroup", folder_ / "self",
              folder_ / "node"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text << '\n';
  }
  void write_cpu(int id, int package, int core) {
    const std::string cpu = "cpu/cpu" + std::to_string(id) + "/topology/";
    write(cpu + "core_id", std::to_string(core));
    write(cpu + "physical_package_id", std::to_string(package));
  }

  std::filesystem::path folder_;
  MachineFiles files_;
};

TEST_F(ReadMachineTest, FindsTheCoresOfHardwareThreads) {
  for (int id = 0; id < 8; ++id) write_cpu(id, id / 4, id % 2);
  const Machine machine = read_machine({0, 1, 2, 3, 4, 5, 6, 7}, files_);
  EXPECT_EQ(machine.cpus.size(), 8u);
  EXPECT_EQ(default_threads(machine).decode, 4);
  EXPECT_EQ(default_threads(read_machine({0, 2, 5}, files_)).decode, 2);
  EXPECT_FALSE(machine.quota_cpus.has_value());
}

TEST_F(ReadMachineTest, TellsTheKindsOfAHybridApart) {
  for (int id = 0; id < 6; ++id) write_cpu(id, 0, id);
  write("devices/cpu_core/cpus", "0,2-3");
  write("devices/cpu_atom/cpus", "1,4-5");
  EXPECT_EQ(default_threads(read_machine({0, 1, 2, 3, 4, 5}, files_)).decode, 3);
  EXPECT_EQ(default_threads(read_machine({1, 4, 5}, files_)).decode, 3);
}

TEST_F(ReadMachineTest, KeepsThreadsToTheFastCoresOfAHybrid) {
  for (int id = 0; id < 6; ++id) write_cpu(id, 0, id / 2);  // the fast core has two threads
  write("devices/cpu_core/cpus", "0-1");
  write("devices/cpu_atom/cpus", "2-5");
  const ThreadDefaults hybrid = default_threads(read_machine({0, 1, 2, 3, 4, 5}, files_));
  EXPECT_THAT(hybrid.kept_to, ElementsAre(0, 1));
  EXPECT_EQ(hybrid.reason,
            "1 thread: one per core, kept to 1 fast cores of 3 (6 hardware threads)");
  const ThreadDefaults equal = default_threads(read_machine({2, 3, 4, 5}, files_));
  EXPECT_THAT(equal.kept_to, ElementsAre());
  EXPECT_EQ(equal.reason, "2 threads: one per core, 2 cores (4 hardware threads)");
}

TEST_F(ReadMachineTest, NamesTheMemoryNodesOfTheProcessorsInUse) {
  for (int id = 0; id < 8; ++id) write_cpu(id, id / 4, id);
  write("node/online", "0-1");
  write("node/node0/cpulist", "0-3");
  write("node/node1/cpulist", "4-7");
  const Machine machine = read_machine({0, 1, 2, 3, 4, 5, 6, 7}, files_);
  EXPECT_EQ(machine.cpus.at(3).node, 0);
  EXPECT_EQ(machine.cpus.at(4).node, 1);
  EXPECT_EQ(default_threads(machine).reason, "8 threads: one per core, 8 cores on 2 memory nodes");
  EXPECT_EQ(default_threads(read_machine({4, 5}, files_)).reason,
            "2 threads: one per core, 2 cores");
}

TEST_F(ReadMachineTest, ReadsCapacities) {
  for (int id = 0; id < 4; ++id) {
    write_cpu(id, 0, id);
    write("cpu/cpu" + std::to_string(id) + "/cpu_capacity", id < 1 ? "1024" : "446");
  }
  EXPECT_EQ(default_threads(read_machine({0, 1, 2, 3}, files_)).decode, 1);
}

TEST_F(ReadMachineTest, TakesTheTightestQuotaOfTheGroupAndItsParents) {
  write("self", "0::/outer/inner");
  write("cgroup/outer/cpu.max", "250000 100000");
  write("cgroup/outer/inner/cpu.max", "max 100000");
  EXPECT_DOUBLE_EQ(read_machine({0, 1, 2, 3}, files_).quota_cpus.value(), 2.5);
  write("cgroup/outer/inner/cpu.max", "50000 100000");
  EXPECT_DOUBLE_EQ(read_machine({0, 1, 2, 3}, files_).quota_cpus.value(), 0.5);
}

TEST_F(ReadMachineTest, ReadsTheQuotaAtTheRootWhereTheOwnPathIsNotMounted) {
  write("self", "0::/somewhere/else");
  write("cgroup/cpu.max", "300000 100000");
  EXPECT_DOUBLE_EQ(read_machine({0}, files_).quota_cpus.value(), 3.0);
}

TEST_F(ReadMachineTest, ReadsTheQuotaOfControlGroupsVersion1) {
  write("self", "7:memory:/x\n4:cpu,cpuacct:/job");
  write("cgroup/cpu/job/cpu.cfs_quota_us", "150000");
  write("cgroup/cpu/job/cpu.cfs_period_us", "100000");
  EXPECT_DOUBLE_EQ(read_machine({0}, files_).quota_cpus.value(), 1.5);
  write("cgroup/cpu/job/cpu.cfs_quota_us", "-1");
  EXPECT_FALSE(read_machine({0}, files_).quota_cpus.has_value());
}

TEST_F(ReadMachineTest, CountsEveryProcessorWhereNothingCanBeRead) {
  EXPECT_EQ(default_threads(read_machine({4, 5, 6}, files_)).decode, 3);
}

TEST(AllowedCpus, FollowTheAffinityMask) {
  const std::vector<int> before = allowed_cpus();
  ASSERT_FALSE(before.empty());
  EXPECT_EQ(allowed_cpu_count(), static_cast<int>(before.size()));
  cpu_set_t saved, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof saved, &saved), 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(before.back()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_THAT(allowed_cpus(), ElementsAre(before.back()));
  ASSERT_EQ(sched_setaffinity(0, sizeof saved, &saved), 0);
}

}  // namespace
}  // namespace lemma::base
