// SPDX-License-Identifier: Apache-2.0
#include "base/aligned_buffer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "lemma/error.hpp"

namespace lemma::base {
namespace {

std::uintptr_t address(const AlignedBuffer& buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer.data());
}

TEST(AlignedBuffer, AlignsSmallBlocksAsAsked) {
  for (std::size_t alignment : {1u, 64u, 256u, 4096u}) {
    for (std::size_t bytes : {1u, 63u, 64u, 1000u}) {
      const auto buffer = AlignedBuffer::uninitialized(bytes, alignment);
      EXPECT_EQ(address(buffer) % std::max<std::size_t>(alignment, 64), 0u);
      EXPECT_EQ(buffer.size(), bytes);
    }
  }
}

TEST(AlignedBuffer, AlignsLargeBlocksToHugePages) {
  for (std::size_t bytes : {AlignedBuffer::kHugePage, AlignedBuffer::kHugePage * 3 + 5}) {
    auto buffer = AlignedBuffer::uninitialized(bytes);
    EXPECT_EQ(address(buffer) % AlignedBuffer::kHugePage, 0u);
    buffer.bytes().front() = std::byte{1};
    buffer.bytes().back() = std::byte{2};
    EXPECT_EQ(buffer.bytes().back(), std::byte{2});
  }
}

TEST(AlignedBuffer, ZeroesEveryByteOfReusedMemory) {
  for (std::size_t bytes : {std::size_t{100}, std::size_t{100000}, AlignedBuffer::kHugePage + 1}) {
    for (int round = 0; round < 3; ++round) {
      auto buffer = AlignedBuffer::zeroed(bytes);
      EXPECT_TRUE(
          std::ranges::all_of(buffer.bytes(), [](std::byte b) { return b == std::byte{0}; }));
      std::ranges::fill(buffer.bytes(), std::byte{0xa5});
    }
  }
}

TEST(AlignedBuffer, MovesItsBlock) {
  auto first = AlignedBuffer::zeroed(128);
  std::byte* const block = first.data();
  AlignedBuffer second(std::move(first));
  EXPECT_EQ(second.data(), block);
  EXPECT_TRUE(first.empty());  // NOLINT: the moved-from state is what is tested
  AlignedBuffer third = AlignedBuffer::zeroed(64);
  third = std::move(second);
  EXPECT_EQ(third.data(), block);
  EXPECT_EQ(third.size(), 128u);
  EXPECT_EQ(second.data(), nullptr);  // NOLINT
}

TEST(AlignedBuffer, HoldsNothingForZeroBytes) {
  const auto buffer = AlignedBuffer::zeroed(0);
  EXPECT_TRUE(buffer.empty());
  EXPECT_TRUE(buffer.as<float>().empty());
}

TEST(AlignedBuffer, LeavesOutAnIncompleteLastElement) {
  auto buffer = AlignedBuffer::zeroed(11);
  EXPECT_EQ(buffer.as<float>().size(), 2u);
}

TEST(AlignedBuffer, NamesTheByteCountWhenMemoryIsShort) {
  for (std::size_t bytes : {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 60}) {
    try {
      AlignedBuffer::zeroed(bytes);
      FAIL() << "allocated " << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::to_string(bytes)));
    }
  }
}

}  // namespace
}  // namespace lemma::base
