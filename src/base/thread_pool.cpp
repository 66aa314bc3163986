// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "base/check.hpp"
#include "base/pause.hpp"
#include "base/raise.hpp"
#include "base/topology.hpp"

namespace lemma::base {
namespace {

// Waking a parked thread costs some 5 to 50 us, and the gaps between the regions of one decode step
// are shorter than that, as is the choice of a token between two steps, so a worker outlives them
// spinning; the pause of an idle server parks it. With more threads than processors a spinning
// thread holds up the one that it waits for, so it only bridges the time that a region's last store
// takes to arrive.
constexpr std::int64_t kSpinNs = 300'000;
constexpr std::int64_t kSpinNsOversubscribed = 1'000;
constexpr int kPausesPerClockRead = 32;

// A wish: a processor may be gone, and then the thread runs where the system puts it.
void keep_to(std::thread& thread, std::span<const int> cpus) noexcept {
  if (cpus.empty()) return;
  const int last = *std::max_element(cpus.begin(), cpus.end());
  cpu_set_t* const mask = CPU_ALLOC(static_cast<std::size_t>(last) + 1);
  if (mask == nullptr) return;
  const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(last) + 1);
  CPU_ZERO_S(bytes, mask);
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, mask);
  pthread_setaffinity_np(thread.native_handle(), bytes, mask);
  CPU_FREE(mask);
}

}  // namespace

ThreadPool::ThreadPool(int threads, std::span<const int> kept_to) : threads_(threads) {
  LEMMA_CHECK(threads >= 1);
  spin_ns_ = threads > allowed_cpu_count() ? kSpinNsOversubscribed : kSpinNs;
  try {
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread] { work(thread); });
      keep_to(workers_.back(), kept_to);
    }
  } catch (const std::system_error& error) {
    const std::size_t started = workers_.size() + 1;
    stop_ = true;
    region_.fetch_add(1);
    region_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    raise(ErrorKind::kOutOfMemory, "cannot start {} threads, only {}: {}", threads, started,
          error.what());
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  region_.fetch_add(1);
  region_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::wait_while_equal(const std::atomic<std::uint32_t>& value,
                                  std::uint32_t old) const noexcept {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::nanoseconds(spin_ns_);
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause();
    }
  } while (Clock::now() < end);
  value.wait(old, std::memory_order_acquire);
}

void ThreadPool::work(int thread) noexcept {
  // A region's gate opens before its number can be seen, so that the number of the one before may
  // be seen again behind it: `entered` keeps the worker from going in twice.
  std::uint32_t seen = 0, entered = 0;
  while (true) {
    wait_while_equal(region_, seen);
    seen = region_.load(std::memory_order_acquire);
    if (stop_) return;
    std::uint64_t gate = gate_.load(std::memory_order_acquire);
    while ((gate & kOpen) != 0 && static_cast<std::uint32_t>(gate >> 32) != entered) {
      if (!gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
        continue;
      }
      entered = static_cast<std::uint32_t>(gate >> 32);
      (*body_)(thread);
      const std::uint64_t before = gate_.fetch_sub(1, std::memory_order_acq_rel);
      if ((before & (kOpen | kInside)) == 1) {
        last_left_.fetch_add(1, std::memory_order_release);
        last_left_.notify_one();
      }
      break;
    }
  }
}

/// Lets nobody in any more and waits until all are out.
void ThreadPool::close() noexcept {
  std::uint32_t left = last_left_.load(std::memory_order_acquire);
  std::uint64_t gate = gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  while ((gate & kInside) != 0) {
    wait_while_equal(last_left_, left);
    left = last_left_.load(std::memory_order_acquire);
    gate = gate_.load(std::memory_order_acquire);
  }
}

void ThreadPool::run(FunctionRef<void(int)> body) noexcept {
  LEMMA_CHECK(!busy_.exchange(true, std::memory_order_acquire));  // nested or concurrent use
  if (threads_ == 1) {
    body(0);
  } else {
    regions_.fetch_add(1, std::memory_order_relaxed);
    body_ = &body;
    const std::uint32_t number = region_.load(std::memory_order_relaxed) + 1;
    gate_.store(std::uint64_t{number} << 32 | kOpen, std::memory_order_release);
    region_.store(number, std::memory_order_seq_cst);
    region_.notify_all();
    body(0);
    close();
  }
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::parallel_for(std::size_t n, std::size_t grain,
                              FunctionRef<void(std::size_t, std::size_t)> body) noexcept {
  LEMMA_CHECK(grain >= 1);
  const std::size_t chunks = n / grain + (n % grain != 0 ? 1 : 0);
  if (chunks == 0) return;
  std::atomic<std::size_t> next{0};
  const auto take_chunks = [&](int) {
    for (std::size_t chunk = next.fetch_add(1, std::memory_order_relaxed); chunk < chunks;
         chunk = next.fetch_add(1, std::memory_order_relaxed)) {
      const std::size_t begin = chunk * grain;
      body(begin, begin + std::min(grain, n - begin));
    }
  };
  if (chunks == 1) {
    LEMMA_CHECK(!busy_.load(std::memory_order_relaxed));
    take_chunks(0);
  } else {
    run(take_chunks);
  }
}

}  // namespace lemma::base
