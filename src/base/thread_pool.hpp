// SPDX-License-Identifier: Apache-2.0
// ThreadPool: a fixed set of threads for the many short parallel regions of a decode step. The
// calling thread takes part as thread 0, so a pool of n threads starts n - 1. Workers wait for
// the next region by spinning briefly and then parking in the kernel; a region allocates nothing.
// A worker that comes late, because the system gave its processor to somebody else, misses the
// region: it is over when the calling thread and those that came have left, so no region waits for
// a thread that took no work.
// Regions do not nest and must not run concurrently on one pool (checked), but different threads
// may use the pool one after another. Everything written before a region is visible inside it,
// and everything written inside is visible after it. Bodies must not throw.
//
//   ThreadPool pool(8);
//   pool.run([&](int thread) { while (const Item* item = take_item()) work_on(*item, thread); });
//   pool.parallel_for(rows, 16, [&](std::size_t begin, std::size_t end) { ... });
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "base/function_ref.hpp"

namespace lemma::base {

class ThreadPool {
 public:
  /// A pool of `threads` >= 1 threads. Those that it starts run on the processors `kept_to`, if
  /// that is not empty and the system allows it. Throws kOutOfMemory if the system refuses to start
  /// them.
  explicit ThreadPool(int threads, std::span<const int> kept_to = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept { return threads_; }

  /// Calls body(thread) on the calling thread, as thread 0, and at most once on each of the others;
  /// returns when all calls have. Those who come must share out the work so that nothing is left
  /// when the calling thread's call returns but what others are at.
  void run(FunctionRef<void(int thread)> body) noexcept;
  /// Regions so far in which workers could take part.
  std::uint64_t regions() const noexcept { return regions_.load(std::memory_order_relaxed); }

  /// Calls body(begin, end) for consecutive ranges of at most `grain` >= 1 that cover [0, n); the
  /// threads take the ranges as they become free. The ranges depend on n and grain alone, never on
  /// the number of threads.
  void parallel_for(std::size_t n, std::size_t grain,
                    FunctionRef<void(std::size_t begin, std::size_t end)> body) noexcept;

 private:
  using Body = FunctionRef<void(int)>;
  static constexpr std::size_t kLine = 64;  // members of different writers share no cache line

  // gate_: the region's number, whether workers may enter, and how many are inside.
  static constexpr std::uint64_t kOpen = std::uint64_t{1} << 31;
  static constexpr std::uint64_t kInside = kOpen - 1;

  void work(int thread) noexcept;
  void close() noexcept;
  void wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old) const noexcept;

  const int threads_;
  std::int64_t spin_ns_ = 0;
  // Written by the caller before it raises `region_`, read by workers after they see it raised.
  const Body* body_ = nullptr;
  std::atomic<bool> stop_{false};
  std::atomic<bool> busy_{false};
  std::atomic<std::uint64_t> regions_{0};
  alignas(kLine) std::atomic<std::uint32_t> region_{0};  // number of the current region
  alignas(kLine) std::atomic<std::uint64_t> gate_{0};
  alignas(kLine) std::atomic<std::uint32_t> last_left_{0};  // raised when a closed region empties
  std::vector<std::thread> workers_;                        // last: the threads use all the above
};

}  // namespace lemma::base
