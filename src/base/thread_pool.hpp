// SPDX-License-Identifier: Apache-2.0
// ThreadPool: a fixed set of threads for the many short parallel regions of a decode step. The
// calling thread takes part as thread 0, so a pool of n threads starts n - 1. Workers wait for
// the next region by spinning briefly and then parking in the kernel; a region allocates nothing.
// Regions do not nest and must not run concurrently on one pool (checked), but different threads
// may use the pool one after another. Everything written before a region is visible inside it,
// and everything written inside is visible after it. Bodies must not throw.
//
//   ThreadPool pool(8);
//   pool.run([&](int thread, int threads) { sum_share(thread, threads); });
//   pool.parallel_for(rows, 16, [&](std::size_t begin, std::size_t end) { ... });
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/function_ref.hpp"

namespace lemma::base {

class ThreadPool {
 public:
  /// A pool of `threads` >= 1 threads. Throws kOutOfMemory if the system refuses to start them.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept { return threads_; }

  /// Calls body(thread, threads()) once on every thread and returns when all have returned.
  void run(FunctionRef<void(int thread, int threads)> body) noexcept;

  /// Calls body(begin, end) for consecutive ranges of at most `grain` >= 1 that cover [0, n); the
  /// threads take the ranges as they become free. The ranges depend on n and grain alone, never on
  /// the number of threads.
  void parallel_for(std::size_t n, std::size_t grain,
                    FunctionRef<void(std::size_t begin, std::size_t end)> body) noexcept;

 private:
  using Body = FunctionRef<void(int, int)>;
  static constexpr std::size_t kLine = 64;  // members of different writers share no cache line

  void work(int thread) noexcept;
  void wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old) const noexcept;

  const int threads_;
  std::int64_t spin_ns_ = 0;
  // Written by the caller before it raises `region_`, read by workers after they see it raised.
  const Body* body_ = nullptr;
  bool stop_ = false;
  std::atomic<bool> busy_{false};
  alignas(kLine) std::atomic<std::uint32_t> region_{0};   // number of the current region
  alignas(kLine) std::atomic<std::uint32_t> running_{0};  // workers still inside it
  std::vector<std::thread> workers_;                      // last: the threads use all the above
};

}  // namespace lemma::base
