// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "base/check.hpp"
#include "base/raise.hpp"
#include "base/topology.hpp"

namespace lemma::base {
namespace {

// Waking a parked thread costs some 5 to 50 us, and the gaps between the regions of one decode step
// are shorter than that, so a worker outlives them spinning; the pause of a step's sampling or of
// an idle server parks it. With more threads than processors a spinning thread holds up the one
// that it waits for, so it only bridges the time that a region's last store takes to arrive.
constexpr std::int64_t kSpinNs = 100'000;
constexpr std::int64_t kSpinNsOversubscribed = 1'000;
constexpr int kPausesPerClockRead = 32;

#if defined(__x86_64__)
inline void pause() noexcept {
  __builtin_ia32_pause();
}
#elif defined(__aarch64__)
inline void pause() noexcept {
  asm volatile("isb" ::: "memory");
}
#else
inline void pause() noexcept {
  std::this_thread::yield();
}
#endif

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  LEMMA_CHECK(threads >= 1);
  spin_ns_ = threads > allowed_cpu_count() ? kSpinNsOversubscribed : kSpinNs;
  try {
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread] { work(thread); });
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
  std::uint32_t seen = 0;
  while (true) {
    wait_while_equal(region_, seen);
    // The next region cannot start before this worker has left the current one, so the number has
    // moved by exactly one.
    ++seen;
    if (stop_) return;
    (*body_)(thread, threads_);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadPool::run(FunctionRef<void(int, int)> body) noexcept {
  LEMMA_CHECK(!busy_.exchange(true, std::memory_order_acquire));  // nested or concurrent use
  if (threads_ > 1) {
    body_ = &body;
    running_.store(static_cast<std::uint32_t>(threads_ - 1), std::memory_order_relaxed);
    region_.fetch_add(1, std::memory_order_seq_cst);
    region_.notify_all();
  }
  body(0, threads_);
  for (std::uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    wait_while_equal(running_, left);
  }
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::parallel_for(std::size_t n, std::size_t grain,
                              FunctionRef<void(std::size_t, std::size_t)> body) noexcept {
  LEMMA_CHECK(grain >= 1);
  const std::size_t chunks = n / grain + (n % grain != 0 ? 1 : 0);
  if (chunks == 0) return;
  std::atomic<std::size_t> next{0};
  const auto take_chunks = [&](int, int) {
    for (std::size_t chunk = next.fetch_add(1, std::memory_order_relaxed); chunk < chunks;
         chunk = next.fetch_add(1, std::memory_order_relaxed)) {
      const std::size_t begin = chunk * grain;
      body(begin, begin + std::min(grain, n - begin));
    }
  };
  if (chunks == 1) {
    LEMMA_CHECK(!busy_.load(std::memory_order_relaxed));
    take_chunks(0, threads_);
  } else {
    run(take_chunks);
  }
}

}  // namespace lemma::base
