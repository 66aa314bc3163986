// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/packing_unpacked.hpp"

#include <array>
#include <cstdint>

#include "weights/formats/codebook.hpp"
#include "weights/formats/grids.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::cpu {
namespace {

using weights::Format;
using weights::formats::Codebook;
using weights::formats::Unpacked;

void put_pair(std::byte* group, std::size_t r, std::size_t i, unsigned code) noexcept {
  or_into(group[i / 16 * kVector + r * 4 + i % 4], code << (i % 16 / 4 * 2));
}

void put_bit(std::byte* group, std::size_t r, std::size_t i, unsigned code) noexcept {
  or_into(group[r * 4 + i % 4], code << (i / 4));
}

void put_nibble(std::byte* group, std::size_t r, std::size_t i, unsigned code) noexcept {
  const NibblePlace to = nibble(r, i);
  or_into(group[to.byte], code << to.shift);
}

/// A panel of super-blocks: bytes before the codes of one, and bytes of codes for 32 columns.
struct SuperLayout {
  std::size_t codes, group;
  constexpr std::size_t block() const noexcept { return codes + 8 * group; }
};
constexpr SuperLayout kQ2_K{64 + 2 * 256, 128}, kQ3_K{64 + 256, 192}, kQ5_K{64 + 2 * 128, 320};
constexpr SuperLayout kQ8_K{64, 512}, kTernary{64, 128}, kTable32{64 + 128, 256};
constexpr SuperLayout kTable16{64 + 256, 256}, kThree32{64 + 128, 192}, kThree16{64 + 256, 192};
constexpr std::size_t kTableBytes = 64;

/// A value of a table -> its nibble; values that are not in it do not occur.
std::array<std::uint8_t, 256> nibbles_of(const Codebook& table) noexcept {
  std::array<std::uint8_t, 256> nibbles{};
  for (std::size_t n = table.size(); n-- > 0;) {
    nibbles[static_cast<std::uint8_t>(table[n])] = static_cast<std::uint8_t>(n);
  }
  return nibbles;
}

/// `levels` and their negatives.
template <std::size_t N>
Codebook signed_table(const std::array<std::int8_t, N>& levels) noexcept {
  Codebook table{};
  for (std::size_t n = 0; n < N; ++n) {
    table[n] = levels[n];
    table[n + N] = static_cast<std::int8_t>(-levels[n]);
  }
  return table;
}

Codebook table_of(Format format) noexcept {
  switch (format) {
    case Format::kIQ1_S:
    case Format::kIQ1_M:
      return signed_table(std::array<std::int8_t, 3>{1, 7, 9});  // 8 g +- 1
    case Format::kIQ2_XXS:
    case Format::kIQ2_XS:
    case Format::kIQ2_S:
      return signed_table(weights::formats::kIQ2Levels);
    case Format::kIQ3_XXS:
      return signed_table(weights::formats::kIQ3_XXSLevels);
    case Format::kIQ3_S:
      return signed_table(weights::formats::kIQ3_SLevels);
    case Format::kMXFP4:
    case Format::kNVFP4:
      return weights::formats::kE2M1Values;
    default:
      return weights::formats::kIQ4Values;
  }
}

/// Calls `pack(unpacked, b)` for the blocks of a row.
template <typename Pack>
void for_each_block(Format format, const std::byte* row, std::size_t cols, Pack&& pack) noexcept {
  const weights::FormatTraits& traits = weights::traits(format);
  weights::formats::Unpack* const unpack = weights::formats::unpacker(format);
  Unpacked block;
  for (std::size_t b = 0; b < cols / traits.block_elements; ++b) {
    unpack(row + b * traits.block_bytes, block);
    pack(block, b);
  }
}

void pack_offset(Format format, const std::byte* row, std::size_t cols, std::size_t r,
                 std::byte* panel) noexcept {
  const bool high = format == Format::kQ5_1;
  const std::size_t stride = 64 + 256 + (high ? 64 : 0);
  for_each_block(format, row, cols, [&](const Unpacked& u, std::size_t b) {
    std::byte* const group = panel + b * stride;
    put(group + r * 2, base::f32_to_f16(u.d));  // exact: an f16 before
    put(group + 32 + r * 2, base::f32_to_f16(u.dmin));
    for (std::size_t i = 0; i < kGroup; ++i) {
      const auto code = static_cast<unsigned>(u.codes[i]);
      put_nibble(group + 64, r, i, code & 15u);
      if (high) put_bit(group + 64 + 256, r, i, code >> 4);
    }
  });
}

/// Writes the 8-bit parts of a super-block, one for each `Parts`-th of 32 columns.
void put_parts(std::byte* at, std::size_t parts, const std::array<float, 16>& values,
               std::size_t r) noexcept {
  for (std::size_t j = 0; j < 8 * parts; ++j) {
    at[j * kPanelRows + r] = static_cast<std::byte>(static_cast<int>(values[j]) & 255);
  }
}

void pack_q2_k(Format format, const std::byte* row, std::size_t cols, std::size_t r,
               std::byte* panel) noexcept {
  for_each_block(format, row, cols, [&](const Unpacked& u, std::size_t b) {
    std::byte* const block = panel + b * kQ2_K.block();
    put(block + r * 2, base::f32_to_f16(u.d));
    put(block + 32 + r * 2, base::f32_to_f16(u.dmin));
    put_parts(block + 64, 2, u.scales, r);
    put_parts(block + 64 + 256, 2, u.minimums, r);
    for (std::size_t e = 0; e < kSuper; ++e) {
      put_pair(block + kQ2_K.codes + e / kGroup * kQ2_K.group, r, e % kGroup,
               static_cast<unsigned>(u.codes[e]));
    }
  });
}

void pack_q3_k(Format format, const std::byte* row, std::size_t cols, std::size_t r,
               std::byte* panel) noexcept {
  for_each_block(format, row, cols, [&](const Unpacked& u, std::size_t b) {
    std::byte* const block = panel + b * kQ3_K.block();
    put(block + r * 2, base::f32_to_f16(u.d));
    put_parts(block + 64, 2, u.scales, r);
    for (std::size_t e = 0; e < kSuper; ++e) {
      std::byte* const group = block + kQ3_K.codes + e / kGroup * kQ3_K.group;
      const auto code = static_cast<unsigned>(u.codes[e] + 4);
      put_pair(group, r, e % kGroup, code & 3u);
      put_bit(group + 128, r, e % kGroup, code >> 2);
    }
  });
}

void pack_q5_k(Format format, const std::byte* row, std::size_t cols, std::size_t r,
               std::byte* panel) noexcept {
  for_each_block(format, row, cols, [&](const Unpacked& u, std::size_t b) {
    std::byte* const block = panel + b * kQ5_K.block();
    put(block + r * 2, base::f32_to_f16(u.d));
    put(block + 32 + r * 2, base::f32_to_f16(u.dmin));
    put_parts(block + 64, 1, u.scales, r);
    put_parts(block + 64 + 128, 1, u.minimums, r);
    for (std::size_t e = 0; e < kSuper; ++e) {
      std::byte* const group = block + kQ5_K.codes + e / kGroup * kQ5_K.group;
      const auto code = static_cast<unsigned>(u.codes[e]);
      put_nibble(group, r, e % kGroup, code & 15u);
      put_bit(group + 256, r, e % kGroup, code >> 4);
    }
  });
}

void pack_q8_k(Format format, const std::byte* row, std::size_t cols, std::size_t r,
               std::byte* panel) noexcept {
  for_each_block(format, row, cols, [&](const Unpacked& u, std::size_t b) {
    std::byte* const block = panel + b * kQ8_K.block();
    put(block + r * 4, u.d);
    for (std::size_t e = 0; e < kSuper; e += 4) {
      std::memcpy(block + kQ8_K.codes + e / 4 * kVector + r * 4, &u.codes[e], 4);
    }
  });
}

void pack_ternary(Format format, const std::byte* row, std::size_t cols, std::size_t r,
                  std::byte* panel) noexcept {
  for_each_block(format, row, cols, [&](const Unpacked& u, std::size_t b) {
    std::byte* const block = panel + b * kTernary.block();
    put(block + r * 2, base::f32_to_f16(u.d));
    for (std::size_t e = 0; e < kSuper; ++e) {
      put_pair(block + kTernary.codes + e / kGroup * kTernary.group, r, e % kGroup,
               static_cast<unsigned>(u.codes[e] + 1));
    }
  });
}

void pack_table(Format format, WeightKernel kernel, const std::byte* row, std::size_t cols,
                std::size_t r, std::byte* panel) noexcept {
  const Codebook table = table_of(format);
  const std::array<std::uint8_t, 256> nibbles = nibbles_of(table);
  const bool three = kernel == WeightKernel::kThree32 || kernel == WeightKernel::kThree16;
  const bool halves = kernel == WeightKernel::kTable16 || kernel == WeightKernel::kThree16;
  const std::size_t parts = halves ? 2 : 1;
  const SuperLayout layout =
      three ? (halves ? kThree16 : kThree32) : (halves ? kTable16 : kTable32);
  std::memcpy(panel, table.data(), table.size());
  for_each_block(format, row, cols, [&](const Unpacked& u, std::size_t b) {
    std::byte* const block = panel + kTableBytes + b * layout.block();
    put(block + r * 4, u.d);
    put_parts(block + 64, parts, u.scales, r);
    for (std::size_t e = 0; e < kSuper; ++e) {
      std::byte* const group = block + layout.codes + e / kGroup * layout.group;
      const unsigned code = nibbles[static_cast<std::uint8_t>(u.codes[e])];
      if (three) {
        put_pair(group, r, e % kGroup, code & 3u);
        put_bit(group + 128, r, e % kGroup, code >> 2);
      } else {
        put_nibble(group, r, e % kGroup, code);
      }
    }
  });
}

void pack_scaled_floats(Format format, WeightKernel kernel, const std::byte* row, std::size_t cols,
                        std::size_t r, std::byte* panel) noexcept {
  const Codebook table = table_of(format);
  const std::array<std::uint8_t, 256> nibbles = nibbles_of(table);
  const std::size_t parts = kernel == WeightKernel::kFloats16 ? 2 : 1;
  const std::size_t stride = 64 * parts + 256, elements = weights::traits(format).block_elements;
  std::memcpy(panel, table.data(), table.size());
  for_each_block(format, row, cols, [&](const Unpacked& u, std::size_t b) {
    std::byte* const first = panel + kTableBytes + b * (elements / kGroup) * stride;
    for (std::size_t j = 0; j < elements / kGroup * parts; ++j) {
      put(first + j / parts * stride + j % parts * 64 + r * 4, u.d * u.scales[j]);
    }
    for (std::size_t e = 0; e < elements; ++e) {
      put_nibble(first + e / kGroup * stride + 64 * parts, r, e % kGroup,
                 nibbles[static_cast<std::uint8_t>(u.codes[e])]);
    }
  });
}

}  // namespace

std::size_t unpacked_panel_bytes(WeightKernel kernel, std::size_t cols) noexcept {
  switch (kernel) {
    case WeightKernel::kQ4_1:
      return cols / kGroup * (64 + 256);
    case WeightKernel::kQ5_1:
      return cols / kGroup * (64 + 256 + 64);
    case WeightKernel::kQ2_K:
      return cols / kSuper * kQ2_K.block();
    case WeightKernel::kQ3_K:
      return cols / kSuper * kQ3_K.block();
    case WeightKernel::kQ5_K:
      return cols / kSuper * kQ5_K.block();
    case WeightKernel::kQ8_K:
      return cols / kSuper * kQ8_K.block();
    case WeightKernel::kTernary:
      return cols / kSuper * kTernary.block();
    case WeightKernel::kTable32:
      return kTableBytes + cols / kSuper * kTable32.block();
    case WeightKernel::kTable16:
      return kTableBytes + cols / kSuper * kTable16.block();
    case WeightKernel::kThree32:
      return kTableBytes + cols / kSuper * kThree32.block();
    case WeightKernel::kThree16:
      return kTableBytes + cols / kSuper * kThree16.block();
    case WeightKernel::kFloats32:
      return kTableBytes + cols / kGroup * (64 + 256);
    case WeightKernel::kFloats16:
      return kTableBytes + cols / kGroup * (2 * 64 + 256);
    default:
      return 0;
  }
}

void pack_unpacked_row(Format format, WeightKernel kernel, const std::byte* row, std::size_t cols,
                       std::size_t r, std::byte* panel) noexcept {
  switch (kernel) {
    case WeightKernel::kQ4_1:
    case WeightKernel::kQ5_1:
      return pack_offset(format, row, cols, r, panel);
    case WeightKernel::kQ2_K:
      return pack_q2_k(format, row, cols, r, panel);
    case WeightKernel::kQ3_K:
      return pack_q3_k(format, row, cols, r, panel);
    case WeightKernel::kQ5_K:
      return pack_q5_k(format, row, cols, r, panel);
    case WeightKernel::kQ8_K:
      return pack_q8_k(format, row, cols, r, panel);
    case WeightKernel::kTernary:
      return pack_ternary(format, row, cols, r, panel);
    case WeightKernel::kTable32:
    case WeightKernel::kTable16:
    case WeightKernel::kThree32:
    case WeightKernel::kThree16:
      return pack_table(format, kernel, row, cols, r, panel);
    case WeightKernel::kFloats32:
    case WeightKernel::kFloats16:
      return pack_scaled_floats(format, kernel, row, cols, r, panel);
    default:
      return;
  }
}

}  // namespace lemma::cpu
