// SPDX-License-Identifier: Apache-2.0
#include "base/aligned_buffer.hpp"

#include <sys/mman.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::base {
namespace {

[[noreturn]] void raise_out_of_memory(std::size_t bytes) {
  raise(ErrorKind::kOutOfMemory, "cannot allocate {} bytes ({:.1f} MiB)", bytes,
        static_cast<double>(bytes) / (1 << 20));
}

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Maps `length` bytes (a multiple of 2 MiB) at a multiple of 2 MiB; nullptr where that fails. The
// kernel only promises page alignment, so one huge page more is mapped and the ends are given back.
std::byte* map_huge(std::size_t length) {
  constexpr std::size_t kUnit = AlignedBuffer::kHugePage;
  void* raw =
      mmap(nullptr, length + kUnit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(raw);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(begin) % kUnit;
  const std::size_t head = misaligned == 0 ? 0 : kUnit - misaligned;
  if (head > 0) munmap(begin, head);
  munmap(begin + head + length, kUnit - head);
  madvise(begin + head, length, MADV_HUGEPAGE);  // a wish; refusal changes speed only
  return begin + head;
}

}  // namespace

AlignedBuffer::~AlignedBuffer() {
  if (mapped_ > 0) {
    munmap(data_, mapped_);
  } else {
    std::free(data_);
  }
}

AlignedBuffer AlignedBuffer::uninitialized(std::size_t bytes, std::size_t alignment) {
  LEMMA_CHECK(std::has_single_bit(alignment) && alignment <= kHugePage);
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) raise_out_of_memory(bytes);
  if (bytes >= kHugePage) {
    const std::size_t length = round_up(bytes, kHugePage);
    buffer.data_ = map_huge(length);
    if (buffer.data_) buffer.mapped_ = length;
  } else {
    if (alignment < kDefaultAlignment) alignment = kDefaultAlignment;
    buffer.data_ =
        static_cast<std::byte*>(std::aligned_alloc(alignment, round_up(bytes, alignment)));
  }
  if (!buffer.data_) raise_out_of_memory(bytes);
  buffer.size_ = bytes;
  return buffer;
}

AlignedBuffer AlignedBuffer::zeroed(std::size_t bytes, std::size_t alignment) {
  AlignedBuffer buffer = uninitialized(bytes, alignment);
  // Fresh anonymous mappings are zero already, and touching them here would commit them.
  if (buffer.mapped_ == 0 && bytes > 0) std::memset(buffer.data_, 0, bytes);
  return buffer;
}

}  // namespace lemma::base
