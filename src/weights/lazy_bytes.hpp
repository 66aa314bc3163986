// SPDX-License-Identifier: Apache-2.0
// LazyBytes: the bytes of a tensor that a container holds in another form (permuted, joined,
// packed). They are made when they are first asked for, once for all who hold them at the same
// time, and released with the last of them: a backend that repacks a weight leaves nothing behind.
// Safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "base/aligned_buffer.hpp"

namespace lemma::weights {

class LazyBytes {
 public:
  /// Writes every byte of `out`. Called under a lock, perhaps more than once in the object's life.
  using Make = std::function<void(std::span<std::byte> out)>;

  LazyBytes(std::uint64_t size, Make make) : size_(size), make_(std::move(make)) {}

  std::uint64_t size() const noexcept { return size_; }
  /// The bytes, made now or shared with whoever holds them. Throws kOutOfMemory, and what `make`
  /// throws.
  std::shared_ptr<const base::AlignedBuffer> get() const;

 private:
  std::uint64_t size_;
  Make make_;
  mutable std::mutex mutex_;
  mutable std::weak_ptr<const base::AlignedBuffer> made_;  ///< guarded by mutex_
};

}  // namespace lemma::weights
