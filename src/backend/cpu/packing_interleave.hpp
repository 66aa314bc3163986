// SPDX-License-Identifier: Apache-2.0
// The two halves of packing. A *strip* is what one row brings to one unit of a panel: its scales
// and the words (four columns each) of its codes, in the panel's order. A *unit* is what 16 strips
// become side by side: [halves][16] 16-bit numbers, padded to 64 bytes; [first][16] words;
// [bytes][16]; [words][16] words. So each format only says how a block becomes a strip, and
// interleaving is written once, in vectors of 16 bytes as every processor has them.
//
// Internal to packing. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels/kernels.hpp"

namespace lemma::cpu::packing {

/// 16 bytes as the processor's plainest vector register holds them.
using Bytes = std::uint8_t __attribute__((vector_size(16)));
using Halves = std::uint16_t __attribute__((vector_size(16)));
using Words = std::uint32_t __attribute__((vector_size(16)));
using Longs = std::uint64_t __attribute__((vector_size(16)));

template <typename T>
T load(const void* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <typename T>
void store(void* at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
}

/// How many of each a strip has (of bytes a multiple of 4); a unit has 16 times as many.
struct Unit {
  std::size_t halves = 0, first = 0, bytes = 0, words = 0;
  constexpr std::size_t size() const noexcept {
    return (halves * 32 + 63) / 64 * 64 + first * 64 + bytes * 16 + words * 64;
  }
};

struct Strip {
  alignas(16) std::uint32_t words[64];
  alignas(16) std::uint8_t bytes[32];
  std::uint32_t first[2];
  std::uint16_t halves[2];
};

/// Puts four words each of 16 rows, `stride` bytes apart, side by side: [4][16] words.
inline void interleave_four_words(const std::byte* rows, std::size_t stride,
                                  std::byte* out) noexcept {
  for (std::size_t r = 0; r < kPanelRows; r += 4) {
    const std::byte* const at = rows + r * stride;
    const auto a = load<Words>(at), b = load<Words>(at + stride);
    const auto c = load<Words>(at + 2 * stride), d = load<Words>(at + 3 * stride);
    const auto ab_low = reinterpret_cast<Longs>(__builtin_shufflevector(a, b, 0, 4, 1, 5));
    const auto ab_high = reinterpret_cast<Longs>(__builtin_shufflevector(a, b, 2, 6, 3, 7));
    const auto cd_low = reinterpret_cast<Longs>(__builtin_shufflevector(c, d, 0, 4, 1, 5));
    const auto cd_high = reinterpret_cast<Longs>(__builtin_shufflevector(c, d, 2, 6, 3, 7));
    store(out + r * 4, __builtin_shufflevector(ab_low, cd_low, 0, 2));
    store(out + 64 + r * 4, __builtin_shufflevector(ab_low, cd_low, 1, 3));
    store(out + 128 + r * 4, __builtin_shufflevector(ab_high, cd_high, 0, 2));
    store(out + 192 + r * 4, __builtin_shufflevector(ab_high, cd_high, 1, 3));
  }
}

/// Puts eight 16-bit numbers each of 16 rows side by side: [8][16]. Row r joins row r + 4, then
/// r + 2, then r + 1, in each half of the rows.
inline void interleave_eight_halves(const std::byte* rows, std::size_t stride,
                                    std::byte* out) noexcept {
  const auto low = [](Halves a, Halves b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  };
  const auto high = [](Halves a, Halves b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  };
  for (std::size_t half = 0; half < 2; ++half) {
    Halves x[8], y[8];
    for (std::size_t r = 0; r < 8; ++r) x[r] = load<Halves>(rows + (half * 8 + r) * stride);
    for (std::size_t round = 0; round < 3; ++round) {
      for (std::size_t r = 0; r < 4; ++r) {
        y[2 * r] = low(x[r], x[r + 4]);
        y[2 * r + 1] = high(x[r], x[r + 4]);
      }
      for (std::size_t r = 0; r < 8; ++r) x[r] = y[r];
    }
    for (std::size_t j = 0; j < 8; ++j) store(out + j * 32 + half * 16, x[j]);
  }
}

inline Bytes zip_low(Bytes a, Bytes b) noexcept {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Bytes zip_high(Bytes a, Bytes b) noexcept {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}

/// Puts eight bytes each of 16 rows side by side: [8][16]. Row r joins row r + 8, then r + 4 ...,
/// so that after four rounds each vector holds one byte of every row, in order.
inline void interleave_eight_bytes(const std::byte* rows, std::size_t stride,
                                   std::byte* out) noexcept {
  Bytes x[8], y[8];
  for (std::size_t r = 0; r < 8; ++r) {
    const Longs low{load<std::uint64_t>(rows + r * stride), 0};
    const Longs high{load<std::uint64_t>(rows + (r + 8) * stride), 0};
    x[r] = zip_low(reinterpret_cast<Bytes>(low), reinterpret_cast<Bytes>(high));
  }
  for (std::size_t round = 0; round < 3; ++round) {
    for (std::size_t r = 0; r < 4; ++r) {
      y[2 * r] = zip_low(x[r], x[r + 4]);
      y[2 * r + 1] = zip_high(x[r], x[r + 4]);
    }
    for (std::size_t r = 0; r < 8; ++r) x[r] = y[r];
  }
  for (std::size_t j = 0; j < 8; ++j) store(out + j * 16, x[j]);
}

/// Writes the unit of 16 strips.
inline void interleave(const Unit& unit, const Strip* strips, std::byte* out) noexcept {
  const auto* const start = reinterpret_cast<const std::byte*>(strips);
  constexpr std::size_t kStride = sizeof(Strip);
  if (unit.halves > 0) {
    std::uint16_t halves[2][kPanelRows] = {};
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      for (std::size_t i = 0; i < unit.halves; ++i) halves[i][r] = strips[r].halves[i];
    }
    std::memcpy(out, halves, sizeof halves);
    out += sizeof halves;
  }
  for (std::size_t i = 0; i < unit.first; ++i, out += 64) {
    for (std::size_t r = 0; r < kPanelRows; ++r) store(out + r * 4, strips[r].first[i]);
  }
  for (std::size_t i = 0; i < unit.bytes / 8 * 8; i += 8, out += 128) {
    interleave_eight_bytes(start + offsetof(Strip, bytes) + i, kStride, out);
  }
  if (unit.bytes % 8 != 0) {  // four
    std::byte eight[128];
    interleave_eight_bytes(start + offsetof(Strip, bytes) + unit.bytes / 8 * 8, kStride, eight);
    std::memcpy(out, eight, 64);
    out += 64;
  }
  std::size_t w = 0;
  for (; w + 4 <= unit.words; w += 4, out += 256) {
    interleave_four_words(start + w * 4, kStride, out);
  }
  for (std::size_t i = 0; i < unit.words % 4; ++i, out += 64) {
    for (std::size_t r = 0; r < kPanelRows; ++r) store(out + r * 4, strips[r].words[w + i]);
  }
}

}  // namespace lemma::cpu::packing
