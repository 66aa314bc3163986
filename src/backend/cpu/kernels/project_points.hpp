// SPDX-License-Identifier: Apache-2.0
// Readers of the packed panels of IQ2_XXS and IQ3, which keep the file's indices into a grid. In a
// group of 32 columns byte p of an output's word belongs to columns 8 p .. 8 p + 7: an index, or
// two of four columns each in IQ3, and a byte of signs. So a vector of codes has *turned* columns:
// number c of a group, of 8, has columns c, 8 + c, 16 + c and 24 + c, and rows of activations are
// turned in the same way before they meet them. Many rows see columns in their order.
//
// An index is looked up once for all of its columns, as two bytes of levels (grid_points.hpp); AVX2
// has kernels of its own (project_loaded.hpp).
// Panels, per 256 columns: [16] f32 d; [16] words of 8 scales of 4 bits; in IQ3_S [2][16][4] bytes
// whose bit g is the ninth bit of group g's indices; then for each of 8 groups [16][4] indices, two
// such vectors in IQ3, and [16][4] bytes of signs.
#pragma once

#include "backend/cpu/kernels/grid_points.hpp"
#include "backend/cpu/kernels/project_expanded.hpp"
#include "backend/cpu/kernels/project_grids.hpp"
#include "backend/cpu/kernels/project_loaded.hpp"

namespace lemma::cpu {

/// Bytes of levels of four points an output.
template <typename Simd>
struct LevelBytes {
  typename Simd::I low, high;
};

/// Points by index: bytes of `index`, with a ninth bit where the bytes of `ninth` have bit `bit`.
template <typename Simd, std::size_t Count>
struct PointLookup {
  using I = typename Simd::I;
  using Numbers = typename Lanes<Simd>::Numbers;
  const GridPoints<Count>& points;

  [[gnu::always_inline]] LevelBytes<Simd> at(I index, I ninth, std::size_t bit) const {
    if constexpr (kLooksUp64<Simd>) {
      if constexpr (Count == 256) {
        return {Simd::lookup256(points.low, index), Simd::lookup256(points.high, index)};
      } else {
        const auto upper = Simd::bytes_with(ninth, bit);
        return {Simd::lookup512(points.low, index, upper),
                Simd::lookup512(points.high, index, upper)};
      }
    }
    if constexpr (requires(I & x) {
                    Simd::template lookup_words<Count>(points.words, index, ninth, x, x);
                  }) {
      LevelBytes<Simd> levels;
      if constexpr (Count > 256)
        ninth = Lanes<Simd>::back(Lanes<Simd>::of(ninth) >> shift(bit) & 0x01010101u);
      Simd::template lookup_words<Count>(points.words, index, ninth, levels.low, levels.high);
      return levels;
    }
    const Numbers words = Lanes<Simd>::of(index), bits = Lanes<Simd>::of(ninth) >> shift(bit);
    const Numbers a = word<0>(words, bits) | word<8>(words, bits) << 8;
    const Numbers b = word<16>(words, bits) | word<24>(words, bits) << 8;
    return {Lanes<Simd>::back((a & 0xffffu) | b << 16),
            Lanes<Simd>::back(a >> 16 | (b & 0xffff0000u))};
  }

 private:
  static std::uint32_t shift(std::size_t bits) { return static_cast<std::uint32_t>(bits); }
  template <int Byte>
  Numbers word(Numbers words, Numbers ninth) const {
    Numbers index = words >> Byte & 0xffu;
    if constexpr (Count > 256) index |= (ninth >> Byte & 1u) << 8;
    Numbers found{};
    for (std::size_t lane = 0; lane < Simd::kLanes; ++lane) {
      const std::uint32_t levels = points.words[index[lane]];
      found[lane] = (levels & 0xffu) | (levels & 0xff00u) << 8;
    }
    return found;
  }
};

/// The eight magnitudes of IQ3 with their negatives.
struct Levels8 {
  std::int8_t plus[8];
};
inline constexpr Levels8 kIQ3_XXSLevels8 = {{4, 12, 20, 28, 36, 44, 52, 62}};
inline constexpr Levels8 kIQ3_SLevels8 = {{1, 3, 5, 7, 9, 11, 13, 15}};

/// Nibbles of levels and signs become values. The signs of column c of eight are bit c / 2, or
/// c / 2 + 4 where c is odd.
template <typename Simd, const Levels8& Levels>
struct SignedNibbles {
  using I = typename Simd::I;
  /// By level in bits 0 .. 2 and sign in bit 3; four times for tables of 64.
  struct Values {
    alignas(64) std::int8_t values[64];
  };
  static constexpr Values kValues = [] {
    Values table{};
    for (int i = 0; i < 64; ++i) {
      const std::int8_t level = Levels.plus[i % 8];
      table.values[i] = i & 8 ? static_cast<std::int8_t>(-level) : level;
    }
    return table;
  }();
  static auto make_table() {
    if constexpr (kLooksUp64<Simd>) {
      return Simd::table64(kValues.values);
    } else {
      return Simd::table(reinterpret_cast<const std::byte*>(kValues.values));
    }
  }
  decltype(make_table()) table = make_table();

  /// `nibbles` has columns c / 2 * 2 (low) and the next one (high).
  template <std::size_t C>
  I value(I nibbles, I signs) const {
    constexpr int kFrom = static_cast<int>(C / 2);
    if constexpr (kLooksUp64<Simd>) {
      const I two = Simd::top_bits(nibbles, Simd::template shift_left<3 - kFrom>(signs));
      if constexpr (C % 2 == 0) return Simd::lookup64(table, two);
      return Simd::lookup64(table, Simd::template shift_right<4>(two));
    } else {
      constexpr int kNibble = static_cast<int>(C % 2 * 4);
      return Simd::lookup(table, Simd::bit_or(Simd::template bits<3, kNibble>(nibbles),
                                              Simd::template bits<1, kFrom + kNibble, 3>(signs)));
    }
  }
};

/// What the formats differ in.
template <typename Simd>
struct PointsIQ2_XXS {
  static constexpr std::size_t kPoints = 256, kIndices = 1;  ///< vectors of indices
  static const GridPoints<256>& points() { return iq2_xxs_points(); }
  using Loaded = LoadedIQ2_XXS<Simd>;
  SignedPairs<Simd, kIQ2Levels3> codes;
  template <std::size_t C>
  typename Simd::I value(const LevelBytes<Simd>& levels, typename Simd::I signs) const {
    return codes.template value<C>(C < 4 ? levels.low : levels.high, signs);
  }
};
template <typename Simd, std::size_t Count, const Levels8& Levels>
struct PointsIQ3 {
  static constexpr std::size_t kPoints = Count, kIndices = 2;
  using Loaded = LoadedIQ3<Simd, Count>;
  static const GridPoints<Count>& points() {
    if constexpr (Count == 256) return iq3_xxs_points();
    if constexpr (Count == 512) return iq3_s_points();
  }
  SignedNibbles<Simd, Levels> codes;
  template <std::size_t C>
  typename Simd::I value(const LevelBytes<Simd>& levels, typename Simd::I signs) const {
    return codes.template value<C>(C % 4 < 2 ? levels.low : levels.high, signs);
  }
};

template <typename Simd, typename Points>
struct PanelPoints : SignedCodes<Simd, 1> {
  using I = typename Simd::I;
  using Loaded = typename Points::Loaded;
  static constexpr bool kNinth = Points::kPoints > 256;
  static constexpr std::size_t kScales = 64, kNinths = kScales + 64;
  static constexpr std::size_t kCodes = kNinths + (kNinth ? 2 * kVectorBytes : 0);
  static constexpr std::size_t kGroupBytes = (Points::kIndices + 1) * kVectorBytes;
  static constexpr std::size_t kBlock = kCodes + 8 * kGroupBytes;
  static constexpr std::size_t kSweep = kBlock / 8;
  Points points;
  PointLookup<Simd, Points::kPoints> lookup{Points::points()};
  const std::byte* panel;

  PanelPoints(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  LoadedGroup loaded(std::size_t g) const {
    return {block(g) + kCodes + g % 8 * kGroupBytes, block(g) + kNinths, g % 8};
  }
  /// Columns C, 8 + C, 16 + C and 24 + C of a group.
  template <std::size_t C>
  [[gnu::always_inline]] I quad(std::size_t g, std::size_t v) const {
    constexpr std::size_t kVector = C / 4 % Points::kIndices;
    const std::size_t at = v * 4 * Simd::kLanes;
    const std::byte* const group = block(g) + kCodes + g % 8 * kGroupBytes + at;
    I ninth{};
    if constexpr (kNinth) ninth = Simd::codes(block(g) + kNinths + kVector * kVectorBytes + at);
    const LevelBytes<Simd> levels =
        lookup.at(Simd::codes(group + kVector * kVectorBytes), ninth, g % 8);
    return points.template value<C>(levels, Simd::codes(group + Points::kIndices * kVectorBytes));
  }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    const std::size_t at = v * 4 * Simd::kLanes;
    return Simd::mul(
        Simd::load_f32(block(g) + at),
        Lanes<Simd>::template odd_scale<4>(Simd::codes(block(g) + kScales + at), g % 8 * 4));
  }

  /// All codes of a group to [8][16][4] bytes, the columns in their order: bytes of four vectors
  /// are transposed within the lanes.
  void put_codes(std::size_t g, std::size_t v, std::byte* to) const {
    if constexpr (kLoadsPoints<Simd>) {
      WideIndices wide;
      Loaded::widen(loaded(g), wide);
      return Loaded::put_codes(Loaded::points(), loaded(g), wide, v, to);
    }
    put_half<0>(g, v, to);
    put_half<1>(g, v, to);
  }

 private:
  template <std::size_t Half>
  void put_half(std::size_t g, std::size_t v, std::byte* to) const {
    using Numbers = typename Lanes<Simd>::Numbers;
    const Numbers a = Lanes<Simd>::of(quad<Half * 4>(g, v));
    const Numbers b = Lanes<Simd>::of(quad<Half * 4 + 1>(g, v));
    const Numbers c = Lanes<Simd>::of(quad<Half * 4 + 2>(g, v));
    const Numbers d = Lanes<Simd>::of(quad<Half * 4 + 3>(g, v));
    constexpr std::uint32_t kEven = 0x00ff00ffu, kLow = 0xffffu;
    const Numbers ab = (a & kEven) | (b & kEven) << 8, cd = (c & kEven) | (d & kEven) << 8;
    const Numbers odd_ab = (a >> 8 & kEven) | (b & ~kEven);
    const Numbers odd_cd = (c >> 8 & kEven) | (d & ~kEven);
    const Numbers quads[4] = {(ab & kLow) | cd << 16, (odd_ab & kLow) | odd_cd << 16,
                              ab >> 16 | (cd & ~kLow), odd_ab >> 16 | (odd_cd & ~kLow)};
    LEMMA_UNROLL
    for (std::size_t p = 0; p < 4; ++p) {
      Simd::store_codes(to + (2 * p + Half) * kVectorBytes + v * 4 * Simd::kLanes,
                        Lanes<Simd>::back(quads[p]));
    }
  }
};

/// Activations of whole groups with their columns turned: eight bytes of four octets.
template <typename Simd>
void turn(const std::int8_t* from, std::size_t count, std::int8_t* to) {
  using Octets = std::uint8_t __attribute__((vector_size(16)));
  for (std::size_t i = 0; i < count; i += kGroup) {
    Octets a, b;
    __builtin_memcpy(&a, from + i, 16);
    __builtin_memcpy(&b, from + i + 16, 16);
    const Octets x =
        __builtin_shufflevector(a, a, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const Octets y =
        __builtin_shufflevector(b, b, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const Octets low =
        __builtin_shufflevector(x, y, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
    const Octets high =
        __builtin_shufflevector(x, y, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31);
    __builtin_memcpy(to + i, &low, 16);
    __builtin_memcpy(to + i + 16, &high, 16);
  }
}

/// Bytes of turned activations at a time.
inline constexpr std::size_t kTurnedBytes = 16384;

/// R rows from `row` on against all panels, some columns at a time. The sums wait in the outputs.
template <typename Simd, typename Panel, std::size_t R>
void project_turned_rows(const ProjectJob& job, std::size_t row) {
  constexpr std::size_t kBlockColumns = kBlockGroups * kGroup;
  constexpr std::size_t kColumns = kTurnedBytes / R / kBlockColumns * kBlockColumns,
                        kVectors = kPanelRows / Simd::kLanes;
  alignas(64) std::int8_t turned[kTurnedBytes];
  for (std::size_t begin = 0; begin < job.cols; begin += kColumns) {
    const std::size_t columns = job.cols - begin < kColumns ? job.cols - begin : kColumns;
    TileRows<Simd, R> rows(job, row);
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      turn<Simd>(rows.codes[r] + begin, columns, turned + r * kColumns);
      rows.codes[r] = turned + r * kColumns;
      rows.scales[r] += begin / kGroup;
      rows.sums[r] += begin / kGroup * 3;
    }
    for (std::size_t first = 0; first < job.outputs; first += kPanelRows) {
      const std::byte* const bytes =
          job.panels + first / kPanelRows * job.panel_bytes + begin / kBlockColumns * Panel::kBlock;
      const Panel panel[1] = {Panel(bytes, job.cols)};
      if constexpr (R == 1) {
        add_one_row<Simd>(job, panel[0], row == 0 ? bytes : nullptr, rows, row, first,
                          columns / kGroup, begin == 0);
        continue;
      }
      Tile<Simd, Panel, R, 1> tile{panel, rows, {}};
      float* const out = job.out + row * job.out_stride;
      for (std::size_t r = 0; r < R; ++r) {
        for (std::size_t v = 0; v < kVectors; ++v) {
          tile.sum[r][0][v] = begin == 0
                                  ? Simd::zero()
                                  : load_columns<Simd>(out + r * job.out_stride,
                                                       first + v * Simd::kLanes, job.outputs);
        }
      }
      for (std::size_t g = 0; g < columns / kGroup; ++g) {
        if (row == 0) prefetch_ahead<Simd, Panel::kSweep>(bytes, g);
        tile.add_group(g);
      }
      for (std::size_t r = 0; r < R; ++r) {
        for (std::size_t v = 0; v < kVectors; ++v) {
          store_columns<Simd>(out + r * job.out_stride, tile.sum[r][0][v], first + v * Simd::kLanes,
                              job.outputs);
        }
      }
    }
  }
}

template <typename Simd, typename Panel>
void project_turned(ProjectJob job) {
  constexpr std::size_t kOutputs = kBeside<Simd> * kPanelRows;
  if constexpr (Simd::kExpandFrom > 0) {
    if (job.rows >= Simd::kExpandFrom) {
      std::size_t first = 0;
      const std::size_t panels = (job.outputs + kPanelRows - 1) / kPanelRows;
      for (; first < panels * kPanelRows / kOutputs * kOutputs; first += kOutputs) {
        project_expanded<Simd, KindOf<Simd, Panel>>(job, kExpand<Simd, Panel>, first);
      }
      if (first >= job.outputs) return;
      job.panels += first / kPanelRows * job.panel_bytes;
      job.outputs -= first;
      job.out += first;
    }
  }
  if constexpr (kLoadsPoints<Simd>) {
    in_tiles<Simd::kInt8Rows, 1>(0, job.rows, [&]<std::size_t R>(std::size_t row) {
      project_loaded<Simd, Panel, R>(job, row);
    });
  } else {
    std::size_t row = 0;
    const auto tiles = [&]<std::size_t R>() {
      for (; row + R <= job.rows; row += R) project_turned_rows<Simd, Panel, R>(job, row);
    };
    tiles.template operator()<Simd::kInt8Rows>();
    if constexpr (Simd::kInt8Rows > 4) tiles.template operator()<4>();
    if constexpr (Simd::kInt8Rows > 2) tiles.template operator()<2>();
    if constexpr (Simd::kInt8Rows > 1) tiles.template operator()<1>();
  }
}

/// The kernel of a table.
template <typename Simd, typename Panel>
void project_points(const ProjectJob& job) {
  project_turned<Simd, Panel>(job);
}

}  // namespace lemma::cpu
