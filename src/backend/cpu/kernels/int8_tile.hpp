// SPDX-License-Identifier: Apache-2.0
// A few rows of int8 activations against one or two panels of quantized weights, for any
// instruction set. A format is a small reader of its packed panel (project_panels.hpp,
// project_formats.hpp); the tile is written once.
//
// Per group of 32 columns: an exact integer dot product of 16 outputs at once, four columns a
// step; then one conversion, and sum = fma(float(dot), weight scale * activation scale, sum). Where
// scales cover 16 columns: t = float(dot0) * scale0; t = fma(float(dot1), scale1, t); sum = fma(t,
// activation scale, sum).
//
// Where such scales are whole numbers whose products with the codes fit a byte (`kFolded`: Q2_K,
// Q3_K), they belong to the exact part, and so do minimums. Per 256 columns, in which a weight
// scale d and a scale of minimums m hold:
//
//   a = b = 0; for each group: a = fma(float(scale0 dot0 + scale1 dot1), activation scale, a)
//                              b = fma(float(min0 sum0 + min1 sum1), activation scale, b)
//   sum = fma(a, d, sum);  sum = fnma(b, m, sum)
//
// The whole numbers are exact in any order and groups follow one another in ascending order, so
// neither the tile's height nor an expansion of the panel changes any bits.
#pragma once

#include "backend/cpu/kernels/kernels.hpp"
#include "backend/cpu/kernels/product.hpp"
#include "backend/cpu/kernels/unroll.hpp"

namespace lemma::cpu {

inline constexpr std::size_t kBlockGroups = 8;       ///< groups of a block of 256 columns
inline constexpr std::size_t kQuad = 4;              ///< columns of one step: a 32-bit lane
inline constexpr std::size_t kVectorBytes = 64;      ///< 16 outputs x 4 columns
inline constexpr std::size_t kPrefetchBytes = 4096;  ///< ahead of what is being read

/// Panels beside each other in a tile of many rows: as many as make 32 outputs of 16 lanes, so that
/// a splat of activations serves two products.
template <typename Simd>
inline constexpr std::size_t kBeside = Simd::kLanes == kPanelRows ? 2 : 1;

/// 0, 1, ... as template arguments.
template <std::size_t... I>
struct Indices {};

/// Asks for the lines that lie the prefetch distance after group `g`'s share of the panel. The
/// shares go through the panel from its first byte to its last, scales and all: a few lines that
/// nobody asked for cost more than all the arithmetic. One row of a layout that is read in the
/// order of its lines (`kInOrder`) does without: the processor's own prefetcher then sees loads
/// that miss one after the other, and reads more than the first cache's few buffers for lines under
/// way.
template <typename Simd, std::size_t Sweep>
void prefetch_ahead(const std::byte* panel, std::size_t g) {
  const std::byte* const at = panel + g * Sweep + kPrefetchBytes;
  LEMMA_UNROLL
  for (std::size_t i = 0; i < Sweep; i += 64) __builtin_prefetch(at + i);
}

/// Quads whose products may be added in 16 bits, in pairs, before they are widened: those of codes
/// up to Most with activations up to 127. One where `Simd` has no products of pairs (AVX2 has: it
/// widens by two instructions) or the codes are too large. Exact, so no bits depend on it.
template <typename Simd, int Most>
constexpr std::size_t pair_run() {
  if constexpr (requires(typename Simd::I w) { Simd::pair_products(w, w); }) {
    constexpr std::size_t kFit = 32767 / (2 * 127 * Most);
    return kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  }
  return 1;
}

/// What a tile asks for while it multiplies: in each group `step` bytes, whole lines, from `at` on.
struct NextLines {
  const std::byte* at = nullptr;  ///< null: nothing
  std::size_t step = 0;
};

/// What the tiles of some panels ask for: the panels that follow, evenly, so that memory delivers
/// all the time and not only while the first tile reads.
template <typename Simd>
struct NextPanels {
  const std::byte* at;
  const std::byte* end;
  std::size_t step;

  NextPanels(const std::byte* from, std::size_t bytes, std::size_t tile_groups)
      : at(from), end(from + bytes), step((bytes / tile_groups + 64) / 64 * 64) {}
  /// The part of the next tile, of `groups` groups.
  NextLines take(std::size_t groups) {
    if (at >= end) return {};
    const NextLines lines{at, step};
    at += groups * step;
    return lines;
  }
};

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

  /// Every output of the tile; vectors of weights are the same for all rows and read once.
  template <typename Body>
  static void each(const Body& body) {
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        LEMMA_UNROLL
        for (std::size_t r = 0; r < R; ++r) body(r, p, v);
      }
    }
  }

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

  /// Adds quads [Q, Q + Count) to sums of pairs in 16 bits, which begin with the first.
  template <std::size_t Q, std::size_t Count, bool First = true>
  void add_pairs(std::size_t g, I (&pairs)[R][P][kVectors]) const {
    I w[P][kVectors];
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) w[p][v] = panels[p].template quad<Q>(g, v);
    }
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      const I a = Simd::splat4(rows.codes[r] + g * kGroup + Q * kQuad);
      LEMMA_UNROLL
      for (std::size_t p = 0; p < P; ++p) {
        LEMMA_UNROLL
        for (std::size_t v = 0; v < kVectors; ++v) {
          const I products = Simd::pair_products(w[p][v], a);
          pairs[r][p][v] = First ? products : Simd::add_pairs(pairs[r][p][v], products);
        }
      }
    }
    if constexpr (Count > 1) add_pairs<Q + 1, Count - 1, false>(g, pairs);
  }

  /// The same as add_quad for quads [Q, End), `Run` at a time.
  template <std::size_t Q, std::size_t End, std::size_t Run>
  void add_runs(std::size_t g, I (&dots)[R][P][kVectors]) const {
    if constexpr (Q < End) {
      I pairs[R][P][kVectors];
      add_pairs<Q, Run>(g, pairs);
      LEMMA_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        LEMMA_UNROLL
        for (std::size_t p = 0; p < P; ++p) {
          LEMMA_UNROLL
          for (std::size_t v = 0; v < kVectors; ++v) {
            dots[r][p][v] = Simd::add_widened(dots[r][p][v], pairs[r][p][v]);
          }
        }
      }
      add_runs<Q + Run, End, Run>(g, dots);
    }
  }

  /// The sum of the activations of one part.
  template <std::size_t Part>
  static std::int32_t part_sum(const std::int32_t* sums) {
    if constexpr (Panel::kParts == 1) return sums[0];
    return Part == 0 ? sums[1] : sums[0] - sums[1];
  }

  /// The exact products of one part: a whole group, or a half where scales cover 16 columns. What
  /// offsets of the codes add to them is taken off before they begin.
  template <std::size_t Part>
  void multiply(std::size_t g, I (&dots)[R][P][kVectors]) const {
    constexpr std::size_t kFirst = Part * 4;
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      const I start = panels[0].start(part_sum<Part>(rows.sums[r] + g * 3));
      LEMMA_UNROLL
      for (std::size_t p = 0; p < P; ++p) {
        LEMMA_UNROLL
        for (std::size_t v = 0; v < kVectors; ++v) dots[r][p][v] = start;
      }
    }
    constexpr std::size_t kRun = pair_run<Simd, Panel::kMost>(),
                          kQuads = Panel::kParts == 1 ? 8 : 4;
    if constexpr (kRun > 1) {
      add_runs<kFirst, kFirst + kQuads, (kRun < kQuads ? kRun : kQuads)>(g, dots);
      return;
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

  /// Subtracts the minimum times the sum of the group's activations.
  void subtract_minimum(std::size_t g) {
    LEMMA_UNROLL
    for (std::size_t p = 0; p < P; ++p) {
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        const F minimum = panels[p].minimum(g, v);
        LEMMA_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
          sum[r][p][v] = Simd::fnma(minimum, Simd::set(rows.scaled_sums[r][g]), sum[r][p][v]);
        }
      }
    }
  }

  /// a and b of a block of a folded format that is expanded.
  void add_expanded_block(std::size_t begin, F (&a)[R][P][kVectors], F (&b)[R][P][kVectors]) const {
    for (std::size_t g = begin; g < begin + kBlockGroups; ++g) {
      I dots[R][P][kVectors];
      multiply<0>(g, dots);
      each([&](std::size_t r, std::size_t p, std::size_t v) {
        a[r][p][v] =
            Simd::fma(Simd::to_float(dots[r][p][v]), Simd::set(rows.scales[r][g]), a[r][p][v]);
      });
      if constexpr (Panel::kMinimum) {
        each([&](std::size_t r, std::size_t p, std::size_t v) {
          const I minimums = Simd::dot_pairs(
              panels[p].minimums(g, v),
              Simd::splat4(reinterpret_cast<const std::int8_t*>(rows.sums[r] + g * 3 + 2)));
          b[r][p][v] =
              Simd::fma(Simd::to_float(minimums), Simd::set(rows.scales[r][g]), b[r][p][v]);
        });
      }
    }
  }

  /// 256 columns of a folded format, from group `begin` on.
  void add_block(const std::byte* streamed, std::size_t begin) {
    F a[R][P][kVectors], b[R][P][kVectors];
    each([&](std::size_t r, std::size_t p, std::size_t v) {
      a[r][p][v] = b[r][p][v] = Simd::zero();
    });
    if constexpr (Panel::kParts == 2) {
      panels[0].add_block(streamed, begin, rows, a, b);
    } else {
      add_expanded_block(begin, a, b);
    }
    each([&](std::size_t r, std::size_t p, std::size_t v) {
      sum[r][p][v] = Simd::fma(a[r][p][v], panels[p].block_scale(begin, v), sum[r][p][v]);
      if constexpr (Panel::kMinimum) {
        sum[r][p][v] = Simd::fnma(b[r][p][v], panels[p].block_minimum(begin, v), sum[r][p][v]);
      }
    });
  }
};

/// What of a row a tile computes, and where: groups [begin, end), added to what `out` has, which
/// begins at zero with group 0.
struct TileJob {
  std::size_t begin, end;
  const std::byte* streamed;  ///< the tile's one panel, if it comes from memory; else null
  NextLines next;
  float* out;
  std::size_t out_stride;
};

/// R rows against P whole panels. Not inlined: among others of its kind the compiler would keep
/// sums in memory.
template <typename Simd, typename Panel, std::size_t R, std::size_t P>
[[gnu::noinline]] void whole_tile(const TileJob& job, const Panel (&panels)[P],
                                  const TileRows<Simd, R>& rows) {
  Tile<Simd, Panel, R, P> tile{panels, rows, {}};
  const auto each = [&](const auto& body) {
    tile.each([&](std::size_t r, std::size_t p, std::size_t v) {
      body(tile.sum[r][p][v], job.out + r * job.out_stride + p * kPanelRows + v * Simd::kLanes);
    });
  };
  if (job.begin == 0) {
    each([](typename Simd::F& sum, float*) { sum = Simd::zero(); });
  } else {
    each([](typename Simd::F& sum, const float* at) { sum = Simd::load(at); });
  }
  const std::byte* next = job.next.at;
  const auto ask = [&](std::size_t bytes) {
    if (P == 1 || next == nullptr) return;
    for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(next + i, 0, 2);
    next += bytes;
  };
  if constexpr (Panel::kFolded) {
    for (std::size_t g = job.begin; g < job.end; g += kBlockGroups) {
      ask(job.next.step * kBlockGroups);
      tile.add_block(job.streamed, g);
    }
  } else {
    for (std::size_t g = job.begin; g < job.end; ++g) {
      if constexpr (Panel::kSweep > 0 && P == 1) {
        const bool asks = R > 1 || !Panel::kInOrder;
        if (asks && job.streamed != nullptr) prefetch_ahead<Simd, Panel::kSweep>(job.streamed, g);
      }
      ask(job.next.step);
      if constexpr (Panel::kParts == 1) tile.add_group(g);
      if constexpr (Panel::kParts == 2) tile.add_halves(g);
      if constexpr (Panel::kMinimum) tile.subtract_minimum(g);
    }
  }
  each([](typename Simd::F sum, float* at) { Simd::store(at, sum); });
}

/// Adds groups [job.begin, job.end) to R rows from `row` on and P panels from output `first` on, of
/// which the last may have fewer than 16 outputs.
template <typename Simd, typename Panel, std::size_t R, std::size_t P>
void int8_tile(const ProjectJob& job, TileJob part, const Panel (&panels)[P], std::size_t row,
               std::size_t first) {
  constexpr std::size_t kWidth = P * kPanelRows;
  const TileRows<Simd, R> rows(job, row);
  float* const out = job.out + row * job.out_stride + first;
  const std::size_t valid = job.outputs - first;
  part.out = out;
  part.out_stride = job.out_stride;
  if (valid >= kWidth) {
    whole_tile<Simd, Panel, R, P>(part, panels, rows);
    return;
  }
  float edge[R * kWidth] = {};
  part.out = edge;
  part.out_stride = kWidth;
  if (part.begin > 0) copy_columns<Simd>(out, job.out_stride, edge, kWidth, R, valid);
  whole_tile<Simd, Panel, R, P>(part, panels, rows);
  copy_columns<Simd>(edge, kWidth, out, job.out_stride, R, valid);
}

}  // namespace lemma::cpu
