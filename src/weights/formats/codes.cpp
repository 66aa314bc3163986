// SPDX-License-Identifier: Apache-2.0
#include "weights/formats/codes.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "weights/formats/unpacked.hpp"

namespace lemma::weights::formats {
namespace {

using Codes = std::span<const std::int8_t>;

void even(Grid& grid, int low, int high, float step) noexcept {
  grid.low = low;
  grid.high = high;
  grid.steps.fill(step);
  grid.offsets.fill(0.f);
}

/// Of a block that unpack() takes apart: `group` elements share a scale.
template <typename Block>
void grouped(const Block& block, std::size_t group, bool minimum, Grid& grid) noexcept {
  Unpacked u;
  unpack(block, u);
  for (std::size_t i = 0; i < Block::kElements; ++i) {
    grid.steps[i] = u.d * u.scales[i / group];
    grid.offsets[i] = minimum ? u.dmin * u.minimums[i / group] : 0.f;
  }
}

void put_fifth_bits(std::uint8_t* qh, Codes codes, int bias) noexcept {
  std::fill_n(qh, 4, std::uint8_t{0});
  for (std::size_t i = 0; i < 32; ++i)
    qh[i / 8] |= static_cast<std::uint8_t>((codes[i] + bias) >> 4 << (i % 8));
}
template <typename Block>
void put_split_nibbles(Block& block, Codes codes, int bias) noexcept {
  std::fill_n(block.qs, sizeof block.qs, std::uint8_t{0});
  for (std::size_t i = 0; i < 32; ++i)
    put_split_nibble(block.qs, i, static_cast<unsigned>((codes[i] + bias) & 15));
}
template <typename Block>
void put_paired_nibbles(Block& block, Codes codes) noexcept {
  std::fill_n(block.qs, sizeof block.qs, std::uint8_t{0});
  for (std::size_t i = 0; i < 256; ++i)
    put_paired_nibble(block.qs, i, static_cast<unsigned>(codes[i] & 15));
}
template <typename Block>
void put_strided_pairs(Block& block, Codes codes, int bias) noexcept {
  std::fill_n(block.qs, sizeof block.qs, std::uint8_t{0});
  for (std::size_t i = 0; i < 256; ++i)
    put_strided_pair(block.qs, i, static_cast<unsigned>((codes[i] + bias) & 3));
}

// An overload of each pair for each format.

void grid_of(const BlockQ8_0& block, Grid& grid) noexcept {
  even(grid, -127, 127, base::f16_to_f32(block.d));
}
void put(Codes codes, BlockQ8_0& block) noexcept {
  std::copy(codes.begin(), codes.end(), block.qs);
}

void grid_of(const BlockQ4_0& block, Grid& grid) noexcept {
  even(grid, -8, 7, base::f16_to_f32(block.d));
}
void put(Codes codes, BlockQ4_0& block) noexcept {
  put_split_nibbles(block, codes, 8);
}

void grid_of(const BlockQ5_0& block, Grid& grid) noexcept {
  even(grid, -16, 15, base::f16_to_f32(block.d));
}
void put(Codes codes, BlockQ5_0& block) noexcept {
  put_split_nibbles(block, codes, 16);
  put_fifth_bits(block.qh, codes, 16);
}

void grid_of(const BlockQ4_1& block, Grid& grid) noexcept {
  grid.high = 15;
  grouped(block, 32, true, grid);
}
void put(Codes codes, BlockQ4_1& block) noexcept {
  put_split_nibbles(block, codes, 0);
}

void grid_of(const BlockQ5_1& block, Grid& grid) noexcept {
  grid.high = 31;
  grouped(block, 32, true, grid);
}
void put(Codes codes, BlockQ5_1& block) noexcept {
  put_split_nibbles(block, codes, 0);
  put_fifth_bits(block.qh, codes, 0);
}

void grid_of(const BlockQ2_K& block, Grid& grid) noexcept {
  grid.high = 3;
  grouped(block, 16, true, grid);
}
void put(Codes codes, BlockQ2_K& block) noexcept {
  put_strided_pairs(block, codes, 0);
}

void grid_of(const BlockQ3_K& block, Grid& grid) noexcept {
  grid.low = -4;
  grid.high = 3;
  grouped(block, 16, false, grid);
}
void put(Codes codes, BlockQ3_K& block) noexcept {
  put_strided_pairs(block, codes, 4);
  std::fill_n(block.hmask, sizeof block.hmask, std::uint8_t{0});
  for (std::size_t i = 0; i < 256; ++i)
    block.hmask[i % 32] |= static_cast<std::uint8_t>((codes[i] + 4) >> 2 << (i / 32));
}

/// Of Q4_K, which is decoded without unpack().
void grid_of(const BlockQ4_K& block, Grid& grid) noexcept {
  grid.high = 15;
  const float d = base::f16_to_f32(block.d), dmin = base::f16_to_f32(block.dmin);
  for (std::size_t i = 0; i < 256; ++i) {
    const ScaleMin pair = unpack_scale_min(block.scales, i / 32);
    grid.steps[i] = d * static_cast<float>(pair.scale);
    grid.offsets[i] = dmin * static_cast<float>(pair.min);
  }
}
void put(Codes codes, BlockQ4_K& block) noexcept {
  put_paired_nibbles(block, codes);
}

void grid_of(const BlockQ5_K& block, Grid& grid) noexcept {
  grid.high = 31;
  grouped(block, 32, true, grid);
}
void put(Codes codes, BlockQ5_K& block) noexcept {
  put_paired_nibbles(block, codes);
  std::fill_n(block.qh, sizeof block.qh, std::uint8_t{0});
  for (std::size_t i = 0; i < 256; ++i)
    block.qh[i % 32] |= static_cast<std::uint8_t>(codes[i] >> 4 << (i / 32));
}

void grid_of(const BlockQ6_K& block, Grid& grid) noexcept {
  even(grid, -32, 31, 0.f);
  const float d = base::f16_to_f32(block.d);
  for (std::size_t i = 0; i < 256; ++i)
    grid.steps[i] = d * static_cast<float>(block.scales[i / 16]);
}
void put(Codes codes, BlockQ6_K& block) noexcept {
  std::fill_n(block.ql, sizeof block.ql, std::uint8_t{0});
  std::fill_n(block.qh, sizeof block.qh, std::uint8_t{0});
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const auto code = static_cast<unsigned>(codes[i] + 32);
    block.ql[half * 64 + quarter % 2 * 32 + l] |=
        static_cast<std::uint8_t>((code & 15) << (quarter / 2 * 4));
    block.qh[half * 32 + l] |= static_cast<std::uint8_t>(code >> 4 << (quarter * 2));
  }
}

template <typename Block>
void read(const std::byte* bytes, Grid& grid) noexcept {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  grid.low = 0;
  grid_of(block, grid);
}
template <typename Block>
void write(Codes codes, std::byte* bytes) noexcept {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  put(codes, block);
  std::memcpy(bytes, &block, sizeof block);
}

struct Access {
  Format format;
  void (*read)(const std::byte* bytes, Grid& grid) noexcept;
  void (*write)(Codes codes, std::byte* bytes) noexcept;
};
template <typename Block>
constexpr Access access(Format format) {
  return {format, read<Block>, write<Block>};
}
constexpr Access kAccess[] = {access<BlockQ8_0>(Format::kQ8_0), access<BlockQ4_0>(Format::kQ4_0),
                              access<BlockQ5_0>(Format::kQ5_0), access<BlockQ4_1>(Format::kQ4_1),
                              access<BlockQ5_1>(Format::kQ5_1), access<BlockQ2_K>(Format::kQ2_K),
                              access<BlockQ3_K>(Format::kQ3_K), access<BlockQ4_K>(Format::kQ4_K),
                              access<BlockQ5_K>(Format::kQ5_K), access<BlockQ6_K>(Format::kQ6_K)};

const Access* find(Format format) noexcept {
  for (const Access& entry : kAccess)
    if (entry.format == format) return &entry;
  return nullptr;
}

}  // namespace

bool has_codes(Format format) noexcept {
  return find(format) != nullptr;
}

void read_grid(Format format, const std::byte* block, Grid& grid) noexcept {
  const Access* const entry = find(format);
  LEMMA_CHECK(entry != nullptr);
  entry->read(block, grid);
}

void write_codes(Format format, std::span<const std::int8_t> codes, std::byte* block) noexcept {
  const Access* const entry = find(format);
  LEMMA_CHECK(entry != nullptr && codes.size() == traits(format).block_elements);
  entry->write(codes, block);
}

}  // namespace lemma::weights::formats
