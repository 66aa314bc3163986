// SPDX-License-Identifier: Apache-2.0
// How a block of each format becomes a strip (packing_interleave.hpp): one struct for each format,
// with the bytes of a row that make one unit and the unit's shape. The panels are drawn at their
// readers, kernels/project_panels.hpp and kernels/project_formats.hpp, the blocks in
// weights/formats; where columns share a byte in both, they are moved as whole words: a shift, a
// mask, or a small transposition of bits. Formats whose nibbles choose values of a table are in
// packing_tables.hpp, those that choose points of a grid in packing_grids.hpp.
//
// Internal to packing. Pure.
#pragma once

#include <array>

#include "backend/cpu/packing_interleave.hpp"
#include "base/half.hpp"
#include "weights/formats/blocks.hpp"

namespace lemma::cpu::packing {

/// 32 nibbles, those at `Shift` of 32 bytes, as four words: columns 4 q.. low, 16 + 4 q.. high.
template <int Shift>
void put_nibbles(const std::uint8_t* bytes, std::uint32_t* words) noexcept {
  const auto low = load<Bytes>(bytes), high = load<Bytes>(bytes + 16);
  if constexpr (Shift == 0) {
    const auto up = reinterpret_cast<Bytes>(reinterpret_cast<Words>(high) << 4);
    store(words, (low & 0x0f) | (up & 0xf0));
  } else {
    const auto down = reinterpret_cast<Bytes>(reinterpret_cast<Words>(low) >> 4);
    store(words, (down & 0x0f) | (high & 0xf0));
  }
}

/// Swaps the bits of `b` under `mask` with those of `a` that lie `Shift` higher.
template <int Shift>
void swap_bits(Longs& a, Longs& b, std::uint64_t mask) noexcept {
  const Longs t = ((a >> Shift) ^ b) & mask;
  b ^= t;
  a ^= t << Shift;
}

/// 128 pairs in the places of Q2_K: pair k of byte i belongs to column i of group k. As the words
/// of groups k: [k][2], bits 2 q, 2 q + 1 of word h holding columns 16 h + 4 q...: for each h four
/// words of pairs are transposed.
inline std::array<Words, 2> transposed_pairs(const std::uint8_t* bytes) noexcept {
  const auto h0 = load<Longs>(bytes), h1 = load<Longs>(bytes + 16);
  auto first = __builtin_shufflevector(h0, h1, 0, 2), last = __builtin_shufflevector(h0, h1, 1, 3);
  swap_bits<4>(first, last, 0x0f0f0f0f0f0f0f0fu);
  auto even = reinterpret_cast<Words>(first), odd = reinterpret_cast<Words>(last);
  // Words: row 0 and 1 of each h; the rows with even numbers go to one vector.
  auto a = reinterpret_cast<Longs>(__builtin_shufflevector(even, odd, 0, 2, 4, 6));
  auto b = reinterpret_cast<Longs>(__builtin_shufflevector(even, odd, 1, 3, 5, 7));
  swap_bits<2>(a, b, 0x3333333333333333u);
  even = reinterpret_cast<Words>(a);
  odd = reinterpret_cast<Words>(b);
  return {__builtin_shufflevector(even, odd, 0, 1, 4, 5),
          __builtin_shufflevector(even, odd, 2, 3, 6, 7)};
}

/// 256 bits in the places of Q3_K and Q5_K: bit k of byte i belongs to column i of group k. Word k
/// of the result has in bit q columns 4 q... of group k: eight words of bits are transposed.
inline std::array<std::uint32_t, 8> transposed_bits(const std::uint8_t* bytes) noexcept {
  auto a = load<Longs>(bytes), b = load<Longs>(bytes + 16);  // rows 0..3, 4..7
  swap_bits<4>(a, b, 0x0f0f0f0f0f0f0f0fu);
  auto c = __builtin_shufflevector(a, b, 0, 2), d = __builtin_shufflevector(a, b, 1, 3);
  swap_bits<2>(c, d, 0x3333333333333333u);  // rows 0, 1, 4, 5 and 2, 3, 6, 7
  const auto e = reinterpret_cast<Words>(c), f = reinterpret_cast<Words>(d);
  a = reinterpret_cast<Longs>(__builtin_shufflevector(e, f, 0, 4, 2, 6));
  b = reinterpret_cast<Longs>(__builtin_shufflevector(e, f, 1, 5, 3, 7));
  swap_bits<1>(a, b, 0x5555555555555555u);  // rows 0, 2, 4, 6 and 1, 3, 5, 7
  const auto even = reinterpret_cast<Words>(a), odd = reinterpret_cast<Words>(b);
  std::array<std::uint32_t, 8> words;
  store(words.data(), __builtin_shufflevector(even, odd, 0, 4, 1, 5));
  store(words.data() + 4, __builtin_shufflevector(even, odd, 2, 6, 3, 7));
  return words;
}

/// A byte of eight columns' bits -> the word of bits for them alone: bit 4 q + b in bit q of byte
/// b.
inline constexpr auto kSpreadByte = [] {
  std::array<std::uint32_t, 256> words{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    for (std::size_t i = 0; i < 8; ++i) {
      words[byte] |= static_cast<std::uint32_t>(byte >> i & 1) << (i % 4 * 8 + i / 4);
    }
  }
  return words;
}();

/// Four such words, of 8 columns each, as the word of 32.
inline std::uint32_t join_bits(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                               std::uint32_t d) noexcept {
  return a | b << 2 | c << 4 | d << 6;
}
inline std::uint32_t spread_bits(const std::uint8_t* bytes) noexcept {
  return join_bits(kSpreadByte[bytes[0]], kSpreadByte[bytes[1]], kSpreadByte[bytes[2]],
                   kSpreadByte[bytes[3]]);
}

/// The 8 scales and 8 minimums of Q5_K, four bytes at a time (weights::unpack_scale_min).
inline void put_scale_mins(const std::uint8_t* packed, std::uint8_t* bytes) noexcept {
  const auto a = load<std::uint32_t>(packed), b = load<std::uint32_t>(packed + 4);
  const auto c = load<std::uint32_t>(packed + 8);
  store(bytes, a & 0x3f3f3f3fu);
  store(bytes + 4, (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u));
  store(bytes + 8, b & 0x3f3f3f3fu);
  store(bytes + 12, (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u));
}

/// Formats of one scale in 32 columns, two blocks a unit. (Half a unit where a row's number of
/// blocks is odd.)
template <typename Block, std::size_t Words32>
struct PairedStrip {
  static constexpr std::size_t kWords = Words32;
  static constexpr Unit kUnit{.halves = 2, .words = 2 * Words32};
  static constexpr std::size_t kBlocks = 2, kUnits = 1, kBlockBytes = sizeof(Block);
  static const Block& at(const std::byte* block) noexcept {
    return *reinterpret_cast<const Block*>(block);  // its members are bytes to the processor
  }
};

struct Q8_0Strip : PairedStrip<weights::BlockQ8_0, 8> {
  static void take(const std::byte* block, std::size_t i, Strip& to) noexcept {
    to.halves[i] = at(block).d;
    std::memcpy(to.words + i * kWords, at(block).qs, 32);
  }
};

struct Q4_0Strip : PairedStrip<weights::BlockQ4_0, 4> {
  static void take(const std::byte* block, std::size_t i, Strip& to) noexcept {
    to.halves[i] = at(block).d;
    std::memcpy(to.words + i * kWords, at(block).qs, 16);
  }
};

struct Q5_0Strip : PairedStrip<weights::BlockQ5_0, 5> {
  static void take(const std::byte* block, std::size_t i, Strip& to) noexcept {
    to.halves[i] = at(block).d;
    to.words[i * kWords] = spread_bits(at(block).qh);
    std::memcpy(to.words + i * kWords + 1, at(block).qs, 16);
  }
};

/// Formats whose blocks are units by themselves.
template <typename Block>
struct BlockStrip {
  static constexpr std::size_t kBlocks = 1, kUnits = 1, kBlockBytes = sizeof(Block);
  static const Block& at(const std::byte* block) noexcept {
    return *reinterpret_cast<const Block*>(block);
  }
};

/// The minimum of a group is -m: adding m is subtracting it.
struct Q4_1Strip : BlockStrip<weights::BlockQ4_1> {
  static constexpr Unit kUnit{.halves = 2, .words = 4};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    to.halves[0] = at(block).d;
    to.halves[1] = static_cast<std::uint16_t>(at(block).m ^ 0x8000u);
    std::memcpy(to.words, at(block).qs, 16);
  }
};

struct Q5_1Strip : BlockStrip<weights::BlockQ5_1> {
  static constexpr Unit kUnit{.halves = 2, .words = 5};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    to.halves[0] = at(block).d;
    to.halves[1] = static_cast<std::uint16_t>(at(block).m ^ 0x8000u);
    to.words[0] = spread_bits(at(block).qh);
    std::memcpy(to.words + 1, at(block).qs, 16);
  }
};

struct Q4_KStrip : BlockStrip<weights::BlockQ4_K> {
  static constexpr Unit kUnit{.halves = 2, .bytes = 12, .words = 32};
  /// Of the 8 scales and 8 minimums of 6 bits the lower 4, then the upper 2, four bytes at a time
  /// (weights::unpack_scale_min). The upper ones lie side by side in bits 4 to 7.
  static void put_scales(const std::uint8_t* packed, std::uint8_t* bytes) noexcept {
    const auto a = load<std::uint32_t>(packed), b = load<std::uint32_t>(packed + 4);
    const auto c = load<std::uint32_t>(packed + 8);
    store(bytes, (a & 0x0f0f0f0fu) | (c & 0x0f0f0f0fu) << 4);
    store(bytes + 4, (b & 0x0f0f0f0fu) | (c & 0xf0f0f0f0u));
    store(bytes + 8, (a >> 4 & 0x0f0f0f0fu) | (b & 0xf0f0f0f0u));
  }
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    to.halves[0] = at(block).d;
    to.halves[1] = at(block).dmin;
    put_scales(at(block).scales, to.bytes);
    for (std::size_t j = 0; j < 4; ++j) {
      put_nibbles<0>(at(block).qs + j * 32, to.words + j * 8);
      put_nibbles<4>(at(block).qs + j * 32, to.words + j * 8 + 4);
    }
  }
};

struct Q5_KStrip : BlockStrip<weights::BlockQ5_K> {
  static constexpr Unit kUnit{.halves = 2, .bytes = 16, .words = 40};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    to.halves[0] = at(block).d;
    to.halves[1] = at(block).dmin;
    put_scale_mins(at(block).scales, to.bytes);
    const auto high = transposed_bits(at(block).qh);
    for (std::size_t j = 0; j < 4; ++j) {
      std::uint32_t* const words = to.words + j * 10;
      words[0] = high[2 * j];
      put_nibbles<0>(at(block).qs + j * 32, words + 1);
      words[5] = high[2 * j + 1];
      put_nibbles<4>(at(block).qs + j * 32, words + 6);
    }
  }
};

struct Q6_KStrip : BlockStrip<weights::BlockQ6_K> {
  static constexpr Unit kUnit{.halves = 1, .bytes = 16, .words = 48};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    to.halves[0] = at(block).d;
    std::memcpy(to.bytes, at(block).scales, 16);
    for (std::size_t half = 0; half < 2; ++half) {
      const std::uint8_t* const low = at(block).ql + half * 64;
      std::uint32_t* const words = to.words + half * 24;
      put_nibbles<0>(low, words + 1);
      put_nibbles<0>(low + 32, words + 7);
      put_nibbles<4>(low, words + 13);
      put_nibbles<4>(low + 32, words + 19);
      const auto pairs = transposed_pairs(at(block).qh + half * 32);
      for (std::size_t k = 0; k < 4; ++k) {
        words[k * 6] = pairs[k / 2][k % 2 * 2];
        words[k * 6 + 5] = pairs[k / 2][k % 2 * 2 + 1];
      }
    }
  }
};

/// Codes as they lie in the file; bytes 1 and 2 of the words of scales change places.
struct Q2_KStrip : BlockStrip<weights::BlockQ2_K> {
  static constexpr Unit kUnit{.halves = 2, .words = 20};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    to.halves[0] = at(block).d;
    to.halves[1] = at(block).dmin;
    const auto scales = load<Words>(at(block).scales);
    store(to.words, (scales & 0xff0000ffu) | (scales & 0xff00u) << 8 | (scales >> 8 & 0xff00u));
    std::memcpy(to.words + 4, at(block).qs, 64);
  }
};

/// Two blocks a unit.
struct Q3_KStrip {
  static constexpr std::size_t kWords = 27;
  static constexpr Unit kUnit{.halves = 2, .words = 2 * kWords};
  static constexpr std::size_t kBlocks = 2, kUnits = 1, kBlockBytes = sizeof(weights::BlockQ3_K);

  /// Of eight scales the lower 4 bits: the even ones' in the lower half, the odd ones' in the
  /// other.
  static std::uint32_t join_nibbles(std::uint64_t scales) noexcept {
    const std::uint64_t low = scales & 0x0f0f0f0f0f0f0f0fu, x = low | low >> 12;
    return static_cast<std::uint32_t>((x & 0xff) | (x >> 24 & 0xff00) | (x << 8 & 0xff0000) |
                                      (x >> 16 & 0xff000000));
  }
  /// Their upper 2 bits: the even ones' in the lowest byte, the odd ones' in byte 2.
  static std::uint32_t join_pairs(std::uint64_t scales) noexcept {
    const std::uint64_t high = scales >> 4 & 0x0303030303030303u, x = high | high >> 14;
    const std::uint64_t y = x | x >> 28;
    return static_cast<std::uint32_t>((y & 0xff) | (y << 8 & 0xff0000));
  }
  static void put_scales(const std::uint8_t* packed, std::uint32_t* words) noexcept {
    // 16 scales of 6 bits: low nibbles in 8 bytes, pairs in the next 4.
    const auto low = load<std::uint64_t>(packed);
    const auto high = load<std::uint32_t>(packed + 8);
    const auto pairs = [&](int k) { return std::uint64_t{high >> (2 * k) & 0x03030303u} << 4; };
    const std::uint64_t first = (low & 0x0f0f0f0f0f0f0f0fu) | pairs(0) | pairs(1) << 32;
    const std::uint64_t last = (low >> 4 & 0x0f0f0f0f0f0f0f0fu) | pairs(2) | pairs(3) << 32;
    words[0] = join_nibbles(first);
    words[1] = join_nibbles(last);
    words[2] = join_pairs(first) | join_pairs(last) << 8;
  }
  /// Four groups: `low` holds their pairs, `high` their bits from bit 0 of each byte on.
  static void put_codes(const std::uint8_t* low, Words high0, Words high1,
                        std::uint32_t* words) noexcept {
    const auto low0 = load<Words>(low), low1 = load<Words>(low + 16);
    const auto code = [](Words pairs, Words bits, int k) {
      return (pairs >> (2 * k) & 0x03030303u) | (bits >> k & 0x01010101u) << 2;
    };
    const Words last0 = code(low0, high0, 3), last1 = code(low1, high1, 3);
    for (int k = 0; k < 3; ++k) {
      Words both = code(low0, high0, k) | code(low1, high1, k) << 3;
      if (k == 0) both |= (last0 & 0x06060606u) << 5;
      if (k == 1) both |= (last1 & 0x06060606u) << 5;
      if (k == 2) both |= (last0 & 0x01010101u) << 6 | (last1 & 0x01010101u) << 7;
      store(words + k * 4, both);
    }
  }
  static void take(const std::byte* bytes, std::size_t i, Strip& to) noexcept {
    const auto& block = *reinterpret_cast<const weights::BlockQ3_K*>(bytes);
    std::uint32_t* const words = to.words + i * kWords;
    to.halves[i] = block.d;
    put_scales(block.scales, words);
    const auto high0 = load<Words>(block.hmask), high1 = load<Words>(block.hmask + 16);
    put_codes(block.qs, high0, high1, words + 3);
    put_codes(block.qs + 32, high0 >> 4, high1 >> 4, words + 15);
  }
};

struct Q8_KStrip : BlockStrip<weights::BlockQ8_K> {
  static constexpr Unit kUnit{.first = 1, .words = 64};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    store(to.first, float{at(block).d});
    std::memcpy(to.words, at(block).qs, 256);
  }
};

struct TQ2_0Strip : BlockStrip<weights::BlockTQ2_0> {
  static constexpr Unit kUnit{.halves = 1, .words = 16};
  static void take(const std::byte* block, std::size_t, Strip& to) noexcept {
    to.halves[0] = at(block).d;
    for (std::size_t half = 0; half < 2; ++half) {
      const auto pairs = transposed_pairs(at(block).qs + half * 32);
      store(to.words + half * 8, pairs[0]);
      store(to.words + half * 8 + 4, pairs[1]);
    }
  }
};

struct TQ1_0Strip : BlockStrip<weights::BlockTQ1_0> {
  static constexpr Unit kUnit{.halves = 2, .words = 28};
  static constexpr std::size_t kBlocks = 2;
  /// Digit n of bytes that hold five in base 3 (weights/formats/tq1_0.cpp): the first place of the
  /// fraction byte * 3^n / 256.
  static Bytes digits(Bytes bytes, std::uint8_t power) noexcept {
    const Bytes fraction = bytes * power;
    return Bytes{} - reinterpret_cast<Bytes>(fraction > 85) -
           reinterpret_cast<Bytes>(fraction > 170);
  }
  /// Numbers of five digits of base 3 as the panel has them (kernels/project_grids.hpp).
  static constexpr auto kFractions = [] {
    std::array<std::uint8_t, 243> bytes{};
    for (unsigned x = 0; x < 243; ++x) {
      bytes[x] = static_cast<std::uint8_t>((x * 256 + 242) / 243 ^ 128);
    }
    return bytes;
  }();
  /// Quads 0 .. 4 of a group as five digits of a word's bytes, quads 5 .. 7 as pairs of bits.
  static void put_group(const std::uint8_t* codes, std::size_t g, std::uint32_t* words) noexcept {
    const auto quad = [&](std::size_t q) { return load<std::uint32_t>(codes + g * 32 + q * 4); };
    const std::uint32_t five =
        (((quad(0) * 3 + quad(1)) * 3 + quad(2)) * 3 + quad(3)) * 3 + quad(4);
    words[g] = kFractions[five & 255] | std::uint32_t{kFractions[five >> 8 & 255]} << 8 |
               std::uint32_t{kFractions[five >> 16 & 255]} << 16 |
               std::uint32_t{kFractions[five >> 24]} << 24;
    for (std::size_t q = 5; q < 8; ++q) words[3 + g / 4 * 3 + q] |= quad(q) << (g % 4 * 2);
  }
  static void take(const std::byte* block, std::size_t i, Strip& to) noexcept {
    constexpr std::uint8_t kPowers[] = {1, 3, 9, 27, 81};
    to.halves[i] = at(block).d;
    alignas(16) std::uint8_t codes[256 + 16];
    const auto a = load<Bytes>(at(block).qs), b = load<Bytes>(at(block).qs + 16);
    const auto c = load<Bytes>(at(block).qs + 32);
    for (std::size_t n = 0; n < 5; ++n) {
      store(codes + n * 32, digits(a, kPowers[n]));
      store(codes + n * 32 + 16, digits(b, kPowers[n]));
      store(codes + 160 + n * 16, digits(c, kPowers[n]));
    }
    const Words last{load<std::uint32_t>(at(block).qh), 0, 0, 0};
    for (std::size_t n = 0; n < 4; ++n) {
      const auto four = digits(reinterpret_cast<Bytes>(last), kPowers[n]);
      store(codes + 240 + n * 4, reinterpret_cast<Words>(four)[0]);
    }
    std::uint32_t* const words = to.words + i * 14;
    std::memset(words + 8, 0, 6 * sizeof words[0]);
    for (std::size_t g = 0; g < 8; ++g) put_group(codes, g, words);
  }
};

}  // namespace lemma::cpu::packing
