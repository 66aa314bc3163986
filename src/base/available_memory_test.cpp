// SPDX-License-Identifier: Apache-2.0
#include "base/available_memory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

namespace lemma::base {
namespace {

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "memory_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    files_ = {folder_ / "meminfo", folder_ / "cgroup", folder_ / "self"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text << '\n';
  }

  std::filesystem::path folder_;
  MemoryFiles files_;
};

TEST_F(AvailableMemoryTest, IsWhatTheSystemReports) {
  EXPECT_EQ(available_memory(files_), std::numeric_limits<std::uint64_t>::max());
  write("meminfo", "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:   500 kB\nBuffers: 7 kB");
  EXPECT_EQ(available_memory(files_), 500u * 1024);
}

TEST_F(AvailableMemoryTest, IsBoundByTheTightestGroupAbove) {
  write("meminfo", "MemAvailable: 500 kB");
  write("self", "0::/outer/inner");
  write("cgroup/outer/memory.max", "200000");
  write("cgroup/outer/memory.current", "50000");
  write("cgroup/outer/inner/memory.max", "max");
  write("cgroup/outer/inner/memory.current", "40000");
  EXPECT_EQ(available_memory(files_), 150000u);
  write("cgroup/outer/memory.stat", "anon 20000\nactive_file 10000\ninactive_file 20000");
  EXPECT_EQ(available_memory(files_), 180000u);
  write("cgroup/outer/inner/memory.max", "30000");
  EXPECT_EQ(available_memory(files_), 0u);
}

TEST_F(AvailableMemoryTest, ReadsTheFirstVersionsFiles) {
  write("self", "4:memory:/job\n3:cpuset:/");
  write("cgroup/memory/job/memory.limit_in_bytes", "100000");
  write("cgroup/memory/job/memory.usage_in_bytes", "60000");
  write("cgroup/memory/job/memory.stat", "active_file 1\ntotal_inactive_file 50000");
  EXPECT_EQ(available_memory(files_), 90000u);
}

}  // namespace
}  // namespace lemma::base
