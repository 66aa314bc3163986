// SPDX-License-Identifier: Apache-2.0
// AlignedBuffer: the move-only owner of a block of raw bytes, aligned for vector loads. It does
// not construct or destroy objects and does not grow. Blocks of 2 MiB and more come straight from
// the operating system, aligned to 2 MiB and marked for huge pages; their memory is committed when
// it is first touched, so the thread that will use a part should also be the first to write it.
//
//   auto scratch = AlignedBuffer::zeroed(rows * cols * sizeof(float));
//   std::span<float> values = scratch.as<float>();
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace lemma::base {

class AlignedBuffer {
 public:
  static constexpr std::size_t kDefaultAlignment = 64;  ///< a cache line, and one AVX-512 vector
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  AlignedBuffer() noexcept = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        mapped_(std::exchange(other.mapped_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    AlignedBuffer taken(std::move(other));
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    std::swap(mapped_, taken.mapped_);
    return *this;
  }
  ~AlignedBuffer();

  /// `bytes` bytes with unspecified contents. `alignment` is a power of two of at most 2 MiB.
  /// Throws kOutOfMemory naming the byte count.
  static AlignedBuffer uninitialized(std::size_t bytes, std::size_t alignment = kDefaultAlignment);
  /// The same with every byte zero.
  static AlignedBuffer zeroed(std::size_t bytes, std::size_t alignment = kDefaultAlignment);

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  std::span<std::byte> bytes() noexcept { return {data_, size_}; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

  /// The whole block as an array of T; bytes beyond the last whole T are left out.
  template <typename T>
  requires std::is_trivially_copyable_v<T> std::span<T> as()
  noexcept { return {reinterpret_cast<T*>(data_), size_ / sizeof(T)}; }
  template <typename T>
  requires std::is_trivially_copyable_v<T> std::span<const T> as()
  const noexcept { return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;  // bytes of the mapping at data_, or 0 where it came from the heap
};

}  // namespace lemma::base
