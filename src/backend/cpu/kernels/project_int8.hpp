// SPDX-License-Identifier: Apache-2.0
// Products of quantized weights with int8 activations, for any instruction set. A format is a
// small reader of its packed panel (project_panels.hpp, project_formats.hpp); the tile is written
// once.
//
// Per group of 32 columns: an exact integer dot product of 16 outputs at once, four columns a
// step; then one conversion, and sum = fma(float(dot), weight scale * activation scale, sum). Where
// scales cover 16 columns: t = float(dot0) * scale0; t = fma(float(dot1), scale1, t); sum = fma(t,
// activation scale, sum). The integer part is exact in any order and groups follow one another in
// ascending order, so neither the tile's height nor an expansion of the panel changes any bits.
#pragma once

#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/kernels/product.hpp"
#include "backend/cpu/kernels/unroll.hpp"

namespace lemma::cpu {

/// 0, 1, ... as template arguments.
template <std::size_t... I>
struct Indices {};

inline constexpr std::size_t kQuad = 4;              ///< columns of one step: a 32-bit lane
inline constexpr std::size_t kVectorBytes = 64;      ///< 16 outputs x 4 columns
inline constexpr std::size_t kPrefetchBytes = 4096;  ///< ahead of what is being read

/// Asks for the lines that lie the prefetch distance after group `g`'s share of the panel. The
/// shares go through the panel from its first byte to its last, scales and all: a few lines that
/// nobody asked for cost more than all the arithmetic.
template <typename Simd, std::size_t Sweep>
void prefetch_ahead(const std::byte* panel, std::size_t g) {
  const std::byte* const at = panel + g * Sweep + kPrefetchBytes;
  LEMMA_UNROLL
  for (std::size_t i = 0; i < Sweep; i += 64) __builtin_prefetch(at + i);
}

/// The rows of a tile: pointers to each row's part of a QuantizedRows. (`Simd` only makes its
/// members local to one instruction set.)
template <typename Simd, std::size_t R>
struct TileRows {
  const std::int8_t* codes[R];
  const float* scales[R];
  const float* scaled_sums[R];
  const std::int32_t* sums[R];

  TileRows(const ProjectJob& job, std::size_t row) {
    const std::size_t groups = job.cols / kGroup;
    for (std::size_t r = 0; r < R; ++r) {
      codes[r] = job.quantized.codes + (row + r) * job.cols;
      scales[r] = job.quantized.scales + (row + r) * groups;
      scaled_sums[r] = job.quantized.scaled_sums + (row + r) * groups;
      sums[r] = job.quantized.sums + (row + r) * groups * 3;
    }
  }
};

/// A tile: R rows by P panels that lie beside each other, for groups [begin, end).
template <typename Simd, typename Panel, std::size_t R, std::size_t P>
struct Tile {
  using F = typename Simd::F;
  using I = typename Simd::I;
  static constexpr std::size_t kVectors = kPanelRows / Simd::kLanes;
  const Panel (&panels)[P];
  const TileRows<Simd, R> rows;
  F sum[R][P][kVectors];

  template <std::size_t Q>
  void add_quad(std::size_t g, I (&dots)[R][P][kVectors]) const {
    LEMMA_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) {
      I w[P];
      LEMMA_UNROLL
      for (std::size_t p = 0; p < P; ++p) w[p] = panels[p].template quad<Q>(g, v);
      LEMMA_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        const I a = Simd::splat4(rows.codes[r] + g * kGroup + Q * kQuad);
        LEMMA_UNROLL
        for (std::size_t p = 0; p < P; ++p) dots[r][p][v] = Panel::dot(dots[r][p][v], w[p], a);
      }
    }
  }

  /// The exact products of one part: a whole group, or a half where scales cover 16 columns. What
  /// offsets of the codes add to them is taken off before they begin.
  template <std::size_t Part>
  void multiply(std::size_t g, I (&dots)[R][P][kVectors]) const {
    constexpr std::size_t kFirst = Part * 4, kSum = Panel::kParts == 1 ? 0 : 1 + Part;
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      I start = Simd::zero_int();
      if constexpr (Panel::kOffsetShift >= 0) {
        start = Simd::template minus_shifted<Panel::kOffsetShift>(rows.sums[r] + g * 3 + kSum);
      }
      LEMMA_UNROLL
      for (std::size_t p = 0; p < P; ++p) {
        LEMMA_UNROLL
        for (std::size_t v = 0; v < kVectors; ++v) dots[r][p][v] = start;
      }
    }
    add_quad<kFirst + 0>(g, dots);
    add_quad<kFirst + 1>(g, dots);
    add_quad<kFirst + 2>(g, dots);
    add_quad<kFirst + 3>(g, dots);
    if constexpr (Panel::kParts == 1) {
      add_quad<4>(g, dots);
      add_quad<5>(g, dots);
      add_quad<6>(g, dots);
      add_quad<7>(g, dots);
    }
  }

  void add_group(std::size_t g) {
    I dots[R][P][kVectors];
    multiply<0>(g, dots);
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        const F scale = panels[p].scale(g, 0, v);
        LEMMA_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
          sum[r][p][v] = Simd::fma(Simd::to_float(dots[r][p][v]),
                                   Simd::mul(scale, Simd::set(rows.scales[r][g])), sum[r][p][v]);
        }
      }
    }
  }

  /// Two halves: their scaled products are added before the activations' scale joins.
  void add_halves(std::size_t g) {
    I dots[R][P][kVectors];
    F both[R][P][kVectors];
    multiply<0>(g, dots);
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        const F scale = panels[p].scale(g, 0, v);
        LEMMA_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
          both[r][p][v] = Simd::mul(Simd::to_float(dots[r][p][v]), scale);
        }
      }
    }
    multiply<1>(g, dots);
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        const F scale = panels[p].scale(g, 1, v);
        LEMMA_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
          const F whole = Simd::fma(Simd::to_float(dots[r][p][v]), scale, both[r][p][v]);
          sum[r][p][v] = Simd::fma(whole, Simd::set(rows.scales[r][g]), sum[r][p][v]);
        }
      }
    }
  }

  /// Subtracts a part's minimum times the sum of its activations.
  template <std::size_t Part>
  void subtract_minimum(std::size_t g) {
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        const F minimum = panels[p].minimum(g, Part, v);
        LEMMA_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
          float activations = rows.scaled_sums[r][g];
          if constexpr (Panel::kParts == 2) {
            activations = rows.scales[r][g] * static_cast<float>(rows.sums[r][g * 3 + 1 + Part]);
          }
          sum[r][p][v] = Simd::fnma(minimum, Simd::set(activations), sum[r][p][v]);
        }
      }
    }
  }
};

/// Adds groups [begin, end) to the outputs, which begin at zero with group 0. `streamed`: the
/// panel, if it comes from memory, else null.
template <typename Simd, typename Panel, std::size_t R, std::size_t P>
void int8_tile(const ProjectJob& job, const Panel (&panels)[P], const std::byte* streamed,
               std::size_t row, std::size_t first, std::size_t begin, std::size_t end) {
  constexpr std::size_t kVectors = kPanelRows / Simd::kLanes;
  Tile<Simd, Panel, R, P> tile{panels, TileRows<Simd, R>(job, row), {}};
  float* const out = job.out + row * job.out_stride;
  LEMMA_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        tile.sum[r][p][v] =
            begin == 0 ? Simd::zero()
                       : load_columns<Simd>(out + r * job.out_stride,
                                            first + p * kPanelRows + v * Simd::kLanes, job.outputs);
      }
    }
  }
  for (std::size_t g = begin; g < end; ++g) {
    if constexpr (Panel::kSweep > 0) {
      if (streamed != nullptr) prefetch_ahead<Simd, Panel::kSweep>(streamed, g);
    }
    if constexpr (Panel::kParts == 1) tile.add_group(g);
    if constexpr (Panel::kParts == 2) tile.add_halves(g);
    if constexpr (Panel::kMinimum) {
      tile.template subtract_minimum<0>(g);
      if constexpr (Panel::kParts == 2) tile.template subtract_minimum<1>(g);
    }
  }
  LEMMA_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        store_columns<Simd>(out + r * job.out_stride, tile.sum[r][p][v],
                            first + p * kPanelRows + v * Simd::kLanes, job.outputs);
      }
    }
  }
}

/// Panels that an expansion puts beside each other: as many as make 32 outputs of 16 lanes, so that
/// a splat of activations serves two products.
template <typename Simd>
inline constexpr std::size_t kBeside = Simd::kLanes == kPanelRows ? 2 : 1;
/// Groups that are expanded at a time: with two panels 64 KiB of codes, which stay in the second
/// cache. Fewer would fit the first, but then every tile's sums travel more often.
inline constexpr std::size_t kExpandedGroups = 64;

/// A panel whose codes, scales and minimums were taken apart once for many rows: what `Panel` would
/// give, vector for vector. Reads like a panel of which only groups from `from` on are there.
template <typename Simd, typename Panel>
struct Expanded {
  static constexpr std::size_t kParts = Panel::kParts;
  static constexpr int kOffsetShift = Panel::kOffsetShift;
  static constexpr bool kMinimum = Panel::kMinimum;
  static constexpr std::size_t kSweep = 0;
  static constexpr std::size_t kNumbers = kParts * kPanelRows;  ///< scales of a group
  struct Memory {
    alignas(64) std::byte codes[kExpandedGroups * 8 * kVectorBytes];
    alignas(64) float scales[kExpandedGroups * kNumbers];
    alignas(64) float minimums[kMinimum ? kExpandedGroups * kNumbers : 1];
  };
  const Memory* memory;
  std::size_t from;

  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    return Simd::codes(memory->codes + ((g - from) * 8 + Q) * kVectorBytes + v * 4 * Simd::kLanes);
  }
  static typename Simd::I dot(typename Simd::I sum, typename Simd::I w, typename Simd::I a) {
    return Panel::dot(sum, w, a);
  }
  typename Simd::F scale(std::size_t g, std::size_t part, std::size_t v) const {
    return Simd::load(memory->scales + (g - from) * kNumbers + part * kPanelRows +
                      v * Simd::kLanes);
  }
  typename Simd::F minimum(std::size_t g, std::size_t part, std::size_t v) const {
    return Simd::load(memory->minimums + (g - from) * kNumbers + part * kPanelRows +
                      v * Simd::kLanes);
  }

  static void fill(const Panel& panel, const std::byte* bytes, std::size_t begin, std::size_t end,
                   Memory& to) {
    for (std::size_t g = begin; g < end; ++g) {
      prefetch_ahead<Simd, Panel::kSweep>(bytes, g);
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kPanelRows / Simd::kLanes; ++v) {
        fill_group(panel, g, v, to, g - begin);
      }
    }
  }

 private:
  template <std::size_t... Q>
  static void fill_quads(const Panel& panel, std::size_t g, std::size_t v, std::byte* to,
                         Indices<Q...>) {
    (Simd::store_codes(to + Q * kVectorBytes, panel.template quad<Q>(g, v)), ...);
  }
  static void fill_group(const Panel& panel, std::size_t g, std::size_t v, Memory& to,
                         std::size_t at) {
    fill_quads(panel, g, v, to.codes + at * 8 * kVectorBytes + v * 4 * Simd::kLanes,
               Indices<0, 1, 2, 3, 4, 5, 6, 7>{});
    LEMMA_UNROLL
    for (std::size_t part = 0; part < kParts; ++part) {
      const std::size_t number = at * kNumbers + part * kPanelRows + v * Simd::kLanes;
      Simd::store(to.scales + number, panel.scale(g, part, v));
      if constexpr (kMinimum) Simd::store(to.minimums + number, panel.minimum(g, part, v));
    }
  }
};

/// kBeside panels from output `first` on against all rows, expanded a few groups at a time. The
/// sums wait in the outputs meanwhile, exactly.
template <typename Simd, typename Panel>
void project_expanded(const ProjectJob& job, std::size_t first) {
  using Wide = Expanded<Simd, Panel>;
  constexpr std::size_t kP = kBeside<Simd>;
  typename Wide::Memory memory[kP];
  Wide panels[kP];
  const std::size_t groups = job.cols / kGroup;
  for (std::size_t begin = 0; begin < groups; begin += kExpandedGroups) {
    const std::size_t end = begin + kExpandedGroups < groups ? begin + kExpandedGroups : groups;
    for (std::size_t p = 0; p < kP; ++p) {
      panels[p] = {memory + p, begin};
      // Beside a last panel stands the same once more, whose outputs are not there.
      const std::size_t at =
          first + p * kPanelRows < job.outputs ? first / kPanelRows + p : first / kPanelRows;
      const std::byte* const bytes = job.panels + at * job.panel_bytes;
      Wide::fill(Panel(bytes, job.cols), bytes, begin, end, memory[p]);
    }
    std::size_t row = 0;
    const auto tiles = [&]<std::size_t R>() {
      for (; row + R <= job.rows; row += R) {
        int8_tile<Simd, Wide, R, kP>(job, panels, nullptr, row, first, begin, end);
      }
    };
    if constexpr (Wide::kParts == 1 && kP == 2) tiles.template operator()<6>();
    tiles.template operator()<4>();
    tiles.template operator()<2>();
    tiles.template operator()<1>();
  }
}

/// One panel against all rows, read as it lies.
template <typename Simd, typename Panel>
void project_packed(const ProjectJob& job, std::size_t first) {
  const std::byte* const bytes = job.panels + first / kPanelRows * job.panel_bytes;
  const Panel panel[1] = {Panel(bytes, job.cols)};
  const std::size_t groups = job.cols / kGroup;
  std::size_t row = 0;
  const auto tiles = [&]<std::size_t R>() {
    for (; row + R <= job.rows; row += R) {
      int8_tile<Simd, Panel, R, 1>(job, panel, row == 0 ? bytes : nullptr, row, first, 0, groups);
    }
  };
  if constexpr (Simd::kInt8Rows >= 8) tiles.template operator()<8>();
  if constexpr (Simd::kInt8Rows >= 4) tiles.template operator()<4>();
  if constexpr (Simd::kInt8Rows >= 2) tiles.template operator()<2>();
  tiles.template operator()<1>();
}

template <typename Simd, typename Panel>
void project_int8(const ProjectJob& job) {
  std::size_t first = 0;
  if constexpr (Simd::kExpandFrom > 0) {
    if (job.rows >= Simd::kExpandFrom) {
      for (; first < job.outputs; first += kBeside<Simd> * kPanelRows) {
        project_expanded<Simd, Panel>(job, first);
      }
      return;
    }
  }
  for (; first < job.outputs; first += kPanelRows) project_packed<Simd, Panel>(job, first);
}

}  // namespace lemma::cpu
