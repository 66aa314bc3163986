// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/topology.hpp"

namespace lemma::base {
namespace {

// One thread, as many as a small machine has, and far more than it has.
class ThreadPoolTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 17));

/// Runs a region that is left only when all of the pool's threads are in it; calls body on each.
template <typename Body>
void run_on_all(ThreadPool& pool, const Body& body) {
  std::atomic<int> inside{0};
  pool.run([&](int thread) {
    ++inside;
    while (inside < pool.threads()) std::this_thread::yield();
    body(thread);
  });
}

TEST_P(ThreadPoolTest, RunsTheBodyOnceOnEveryThreadThatComes) {
  ThreadPool pool(GetParam());
  const auto caller = std::this_thread::get_id();
  std::vector<int> calls(static_cast<std::size_t>(GetParam()));
  std::vector<std::thread::id> ids(calls.size());
  run_on_all(pool, [&](int thread) {
    ++calls[static_cast<std::size_t>(thread)];
    ids[static_cast<std::size_t>(thread)] = std::this_thread::get_id();
  });
  for (int count : calls) EXPECT_EQ(count, 1);
  EXPECT_EQ(ids[0], caller);
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), ids.size());
}

TEST_P(ThreadPoolTest, CallsNoThreadTwiceInAnyOfManyRegions) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> calls(static_cast<std::size_t>(GetParam()));
  for (int region = 1; region <= 2000; ++region) {
    pool.run([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
    ASSERT_EQ(calls[0], region);
    for (const auto& count : calls) ASSERT_LE(count, region);
  }
}

TEST_P(ThreadPoolTest, OrdersTheWritesOfConsecutiveRegions) {
  // Plain, unsynchronised data: each region reads what another thread wrote in the one before.
  ThreadPool pool(GetParam());
  const auto n = static_cast<std::size_t>(GetParam());
  std::vector<std::size_t> from(n), to(n);
  constexpr std::size_t kRegions = 500;
  for (std::size_t region = 0; region < kRegions; ++region) {
    pool.parallel_for(n, 1, [&](std::size_t i, std::size_t) { to[i] = from[(i + 1) % n] + 1; });
    std::swap(from, to);
  }
  for (std::size_t value : from) EXPECT_EQ(value, kRegions);
}

TEST_P(ThreadPoolTest, WakesParkedThreads) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // far beyond the spinning time
    std::atomic<int> calls{0};
    run_on_all(pool, [&](int) { ++calls; });
    EXPECT_EQ(calls, GetParam());
  }
}

TEST_P(ThreadPoolTest, WaitsForAThreadThatTakesLong) {
  ThreadPool pool(GetParam());
  int slow = 0;
  run_on_all(pool, [&](int thread) {
    if (thread != GetParam() - 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    slow = 1;
  });
  EXPECT_EQ(slow, 1);
}

TEST_P(ThreadPoolTest, ServesDifferentThreadsOneAfterAnother) {
  ThreadPool pool(GetParam());
  int total = 0;
  for (int round = 0; round < 5; ++round) {
    std::thread([&] {
      std::vector<int> shares(static_cast<std::size_t>(GetParam()));
      run_on_all(pool, [&](int thread) { shares[static_cast<std::size_t>(thread)] = 1; });
      for (int share : shares) total += share;
    }).join();
  }
  EXPECT_EQ(total, 5 * GetParam());
}

TEST_P(ThreadPoolTest, CountsTheRegionsThatWorkersCouldEnter) {
  ThreadPool pool(GetParam());
  for (int region = 0; region < 3; ++region) pool.run([](int) {});
  EXPECT_EQ(pool.regions(), GetParam() > 1 ? 3u : 0u);
}

TEST_P(ThreadPoolTest, IsDestroyedUnusedAndRightAfterUse) {
  for (int round = 0; round < 20; ++round) {
    ThreadPool unused(GetParam());
    ThreadPool used(GetParam());
    used.run([](int) {});
  }
}

TEST_P(ThreadPoolTest, CoversARangeExactlyOnce) {
  ThreadPool pool(GetParam());
  for (std::size_t n : {0u, 1u, 2u, 63u, 64u, 65u, 1000u}) {
    for (std::size_t grain : {1u, 3u, 64u, 5000u}) {
      std::vector<int> touched(n);
      pool.parallel_for(n, grain, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) ++touched[i];
      });
      EXPECT_EQ(touched, std::vector<int>(n, 1)) << n << " by " << grain;
    }
  }
}

TEST_P(ThreadPoolTest, CutsARangeWithoutRegardToTheThreadCount) {
  ThreadPool pool(GetParam());
  std::set<std::pair<std::size_t, std::size_t>> ranges;
  std::mutex mutex;
  pool.parallel_for(10, 4, [&](std::size_t begin, std::size_t end) {
    const std::lock_guard lock(mutex);
    ranges.emplace(begin, end);
  });
  const std::set<std::pair<std::size_t, std::size_t>> expected = {{0, 4}, {4, 8}, {8, 10}};
  EXPECT_EQ(ranges, expected);
}

TEST_P(ThreadPoolTest, CutsTheLargestRangeWithoutOverflow) {
  ThreadPool pool(GetParam());
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  std::atomic<std::size_t> covered{0};
  pool.parallel_for(kMax, kMax / 2,
                    [&](std::size_t begin, std::size_t end) { covered += end - begin; });
  EXPECT_EQ(covered, kMax);
}

TEST(ThreadPool, KeepsItsThreadsToTheProcessorsAskedFor) {
  const std::vector<int> one = {allowed_cpus().back()};
  ThreadPool pool(3, one);
  std::vector<std::vector<int>> seen(3);
  run_on_all(pool, [&](int thread) { seen[static_cast<std::size_t>(thread)] = allowed_cpus(); });
  EXPECT_EQ(seen[1], one);
  EXPECT_EQ(seen[2], one);
  EXPECT_EQ(seen[0], allowed_cpus());
}

TEST(ThreadPoolDeathTest, RefusesNestedRegions) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(1);
        pool.run([&](int) { pool.run([](int) {}); });
      },
      "internal check failed");
}

}  // namespace
}  // namespace lemma::base
