// SPDX-License-Identifier: Apache-2.0
// A few rows against panels that keep indices into a grid, where no instruction looks bytes up
// among 64 (AVX2): points are loaded one by one, as words that have all of a point's columns. Those
// are as many loads as a gather does, without what a gather adds to them.
//
// A word of IQ3 is a lane of four columns, so that vectors are those of a panel in the usual order.
// One of IQ2_XXS has eight columns, so that a vector has four outputs, and sums of pairs of lanes
// are brought together at the end of a group. What is multiplied are magnitudes: signs go to the
// activations. Whole numbers are exact in any order and groups follow one another in ascending
// order, as in int8_tile.hpp: the bits are those of the other kernels.
#pragma once

#include "backend/cpu/kernels/grid_points.hpp"
#include "backend/cpu/kernels/project_grids.hpp"

namespace lemma::cpu {

/// Whether `Simd` has what this file needs.
template <typename Simd>
inline constexpr bool kLoadsPoints = requires(typename Simd::I x) {
  Simd::add_neighbours(x, x);
};

/// Products of magnitudes up to Most, added up in lanes of 32 bits, by way of 16 bits where they
/// are made in pairs.
template <typename Simd, int Most>
struct LoadedSum {
  using I = typename Simd::I;
  static constexpr bool kPairs = requires(I w) { Simd::pair_products(w, w); };
  static constexpr std::size_t kRun = pair_run<Simd, Most>();
  I sum = Simd::set_int(0), pairs = sum;

  template <std::size_t N>
  void add(I magnitudes, I activations) {
    if constexpr (kPairs) {
      const I products = Simd::pair_products(magnitudes, activations);
      pairs = N % kRun == 0 ? products : Simd::add_pairs(pairs, products);
      if constexpr (N % kRun == kRun - 1) sum = Simd::add_widened(sum, pairs);
    } else {
      sum = Simd::dot_unsigned(sum, magnitudes, activations);
    }
  }
};

/// A group of a panel.
struct LoadedGroup {
  const std::byte* codes;   ///< indices, then signs
  const std::byte* ninths;  ///< of IQ3_S: the ninth bits of the block's indices
  std::size_t g;            ///< in the block
};

/// Indices of a group of IQ3_S with their ninth bits, two bytes each: [2][2][32] for vectors v and
/// the halves h of octets. Those of other formats stay where they are.
struct WideIndices {
  alignas(32) std::byte bytes[4][64];
};

/// (`Simd` only makes its members local to one instruction set.)
template <typename Simd>
struct LoadedIndex {
  /// An index that the compiler takes as it is: it would rather scale it by instructions of its
  /// own.
  static std::size_t of(std::size_t x) {
    asm("" : "+r"(x));
    return x;
  }
  /// Two of a byte each. (Loaded together they leave a load for something else.)
  static void load_two(const std::byte* at, std::size_t (&i)[2]) {
    std::uint16_t x;
    __builtin_memcpy(&x, at, 2);
    i[0] = of(x & 0xffu);
    i[1] = of(x >> 8);
  }
};

template <typename Simd>
struct LoadedIQ2_XXS {
  using I = typename Simd::I;
  using Word = std::uint64_t;
  static const Word* points() { return iq2_xxs_loads().words; }
  static void widen(const LoadedGroup&, WideIndices&) {}

  /// Outputs 8 v .. 8 v + 7 with R rows of activations.
  template <std::size_t R>
  static void dot(const Word* points, const LoadedGroup& group, const WideIndices&, std::size_t v,
                  const std::int8_t* const (&a)[R], I (&dots)[R]) {
    LoadedSum<Simd, 43> sums[R][2];
    add<0>(points, group.codes + v * 32, a, sums);
    add<2>(points, group.codes + v * 32, a, sums);
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      dots[r] = Simd::add_neighbours(sums[r][0].sum, sums[r][1].sum);
    }
  }

  /// Their codes, as expansion wants them.
  static void put_codes(const Word* points, const LoadedGroup& group, const WideIndices&,
                        std::size_t v, std::byte* to) {
    put<0>(points, group.codes + v * 32, to + v * 32);
    put<2>(points, group.codes + v * 32, to + v * 32);
  }

 private:
  /// Octets P and P + 1 of outputs 0, 1, 4, 5 or 2, 3, 6, 7.
  template <std::size_t P>
  static void load(const Word* points, const std::byte* codes, std::size_t half, I (&to)[2]) {
    const std::byte* const index = codes + half * 8 + P;
    const auto at = [&](std::size_t o, std::size_t(&i)[2]) {
      LoadedIndex<Simd>::load_two(index + (o % 2 + o / 2 * 4) * 4, i);
    };
    Simd::two_of_four_octets(points, at, to);
  }
  static I signs(const std::byte* codes) { return Simd::codes(codes + kVectorBytes); }
  template <std::size_t P, std::size_t R>
  static void add(const Word* points, const std::byte* codes, const std::int8_t* const (&a)[R],
                  LoadedSum<Simd, 43> (&sums)[R][2]) {
    const I bits = signs(codes);
    LEMMA_UNROLL
    for (std::size_t half = 0; half < 2; ++half) {
      I magnitudes[2];
      load<P>(points, codes, half, magnitudes);
      const I set[2] = {sign<P>(bits, half), sign<P + 1>(bits, half)};
      LEMMA_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        const std::int8_t* const octets = a[r] + P * 8;
        sums[r][half].template add<0>(magnitudes[0], Simd::with_sign(Simd::octet(octets), set[0]));
        sums[r][half].template add<1>(magnitudes[1],
                                      Simd::with_sign(Simd::octet(octets + 8), set[1]));
      }
    }
  }
  template <std::size_t P>
  static I sign(I bits, std::size_t half) {
    return half == 0 ? Simd::template octets_set<P>(bits) : Simd::template octets_set<P + 8>(bits);
  }
  template <std::size_t P>
  static void put(const Word* points, const std::byte* codes, std::byte* to) {
    const I bits = signs(codes);
    I a[2], b[2];
    load<P>(points, codes, 0, a);
    load<P>(points, codes, 1, b);
    put(Simd::with_sign(a[0], sign<P>(bits, 0)), Simd::with_sign(b[0], sign<P>(bits, 1)),
        to + P * 2 * kVectorBytes);
    put(Simd::with_sign(a[1], sign<P + 1>(bits, 0)), Simd::with_sign(b[1], sign<P + 1>(bits, 1)),
        to + (P + 1) * 2 * kVectorBytes);
  }
  /// Two quads of all eight outputs.
  static void put(I a, I b, std::byte* to) {
    Simd::store_codes(to, Simd::as_signed(Simd::even_lanes(a, b)));
    Simd::store_codes(to + kVectorBytes, Simd::as_signed(Simd::odd_lanes(a, b)));
  }
};

template <typename Simd, std::size_t Count>
struct LoadedIQ3 {
  using I = typename Simd::I;
  using Word = std::uint32_t;
  typedef std::uint8_t Octets __attribute__((vector_size(sizeof(I))));
  static constexpr bool kNinth = Count > 256;
  static constexpr int kMost = kNinth ? 15 : 31;  ///< of IQ3_XXS halved
  static const Word* points() {
    if constexpr (kNinth) return iq3_s_loads().words;
    return iq3_xxs_loads().words;
  }

  template <std::size_t R>
  static void dot(const Word* points, const LoadedGroup& group, const WideIndices& wide,
                  std::size_t v, const std::int8_t* const (&a)[R], I (&dots)[R]) {
    LoadedSum<Simd, kMost> sums[R];
    const auto add = [&]<std::size_t N>(std::size_t quad, I magnitudes, I sign) {
      LEMMA_UNROLL
      for (std::size_t r = 0; r < R; ++r) {
        sums[r].template add<N>(magnitudes,
                                Simd::with_sign(Simd::splat4(a[r] + quad * kQuad), sign));
      }
    };
    each_quad(points, group, wide, v, add);
    LEMMA_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      dots[r] = kNinth ? sums[r].sum : Lanes<Simd>::back(Lanes<Simd>::of(sums[r].sum) * 2u);
    }
  }

  static void put_codes(const Word* points, const LoadedGroup& group, const WideIndices& wide,
                        std::size_t v, std::byte* to) {
    each_quad(points, group, wide, v, [&]<std::size_t N>(std::size_t quad, I magnitudes, I sign) {
      const I whole = kNinth ? magnitudes : Lanes<Simd>::back(Lanes<Simd>::of(magnitudes) * 2u);
      Simd::store_codes(to + quad * kVectorBytes + v * 32,
                        Simd::as_signed(Simd::with_sign(whole, sign)));
    });
  }

  static void widen(const LoadedGroup& group, WideIndices& to) {
    if constexpr (kNinth) {
      LEMMA_UNROLL
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t at = i % 2 * kVectorBytes + i / 2 * 32;
        const I low = Simd::codes(group.codes + at);
        const I high = Lanes<Simd>::back(Lanes<Simd>::of(Simd::codes(group.ninths + at)) >>
                                             static_cast<std::uint32_t>(group.g) &
                                         0x01010101u);
        Simd::store_codes(to.bytes[i], Simd::unpack_low(low, high));
        Simd::store_codes(to.bytes[i] + 32, Simd::unpack_high(low, high));
      }
    }
  }

 private:
  /// Calls body<N>(quad, magnitudes, sign) for the eight quads, N = 0 .. 7, in some order.
  template <typename Body>
  static void each_quad(const Word* points, const LoadedGroup& group, const WideIndices& wide,
                        std::size_t v, const Body& body) {
    const std::byte* const codes = group.codes + v * 32;
    const I signs = Simd::codes(codes + 2 * kVectorBytes);
    const I moved = Lanes<Simd>::back(Lanes<Simd>::of(signs) << 1);
    half<0>(points, kNinth ? wide.bytes[2 * v] : codes, moved, body);
    half<1>(points, kNinth ? wide.bytes[2 * v + 1] : codes + kVectorBytes, signs, body);
  }
  template <std::size_t H, typename Body>
  static void half(const Word* points, const std::byte* index, I signs, const Body& body) {
    two<H, 0>(points, index, signs, body);
    two<H, 2>(points, index, signs, body);
  }
  /// Quads of points P and P + 1.
  template <std::size_t H, std::size_t P, typename Body>
  static void two(const Word* points, const std::byte* index, I signs, const Body& body) {
    const auto at = [&](std::size_t o, std::size_t(&i)[2]) {
      if constexpr (kNinth) {
        // As unpacking orders them: outputs 0, 1, 4, 5, 2, 3, 6, 7.
        const std::size_t place = o % 2 * 4 + o / 4 * 8 + o / 2 % 2 * 16;
        std::uint32_t x;
        __builtin_memcpy(&x, index + (place + P) * 2, 4);
        i[0] = LoadedIndex<Simd>::of(x & 0xffffu);
        i[1] = LoadedIndex<Simd>::of(x >> 16);
      } else {
        LoadedIndex<Simd>::load_two(index + o * 4 + P, i);
      }
    };
    I quads[2];
    Simd::two_of_eight_words(points, at, quads);
    body.template operator()<H * 4 + P>(P * 2 + H, quads[0], sign<H, P>(signs));
    body.template operator()<H * 4 + P + 1>(P * 2 + 2 + H, quads[1], sign<H, P + 1>(signs));
  }
  /// Bytes below 0 where a column's sign is set, else above. The signs of columns 4 h .. 4 h + 3 of
  /// an octet are bits 2 h, 2 h + 4, 2 h + 1, 2 h + 5; those of h = 0 lie one higher here, since
  /// bit 0 has no half.
  template <std::size_t H, std::size_t P>
  static I sign(I signs) {
    constexpr std::uint32_t kBits = H == 0 ? 0x40042002u : 0x80084004u;
    const auto own = Lanes<Simd>::of(Simd::template spread<P>(signs)) & kBits;
    const auto halves = Lanes<Simd>::of(Simd::set_int(static_cast<std::int32_t>(kBits / 2)));
    return __builtin_bit_cast(I,
                              __builtin_bit_cast(Octets, halves) - __builtin_bit_cast(Octets, own));
  }
};

/// R rows from `row` on against all panels.
template <typename Simd, typename Panel, std::size_t R>
void project_loaded(const ProjectJob& job, std::size_t row) {
  using Loaded = typename Panel::Loaded;
  constexpr std::size_t kVectors = kPanelRows / Simd::kLanes;
  const TileRows<Simd, R> rows(job, row);
  const auto* const points = Loaded::points();
  const std::size_t groups = job.cols / kGroup;
  for (std::size_t first = 0; first < job.outputs; first += kPanelRows) {
    const std::byte* const bytes = job.panels + first / kPanelRows * job.panel_bytes;
    const Panel panel(bytes, job.cols);
    typename Simd::F sum[R][kVectors];
    for (auto& sums : sum) {
      for (auto& x : sums) x = Simd::zero();
    }
    WideIndices wide[2];  // some time before they are used: bytes that a vector stored
    Loaded::widen(panel.loaded(0), wide[0]);
    for (std::size_t g = 0; g < groups; ++g) {
      if (g + 1 < groups) Loaded::widen(panel.loaded(g + 1), wide[(g + 1) % 2]);
      if (row == 0) prefetch_ahead<Simd, Panel::kSweep>(bytes, g);
      const std::int8_t* a[R];
      LEMMA_UNROLL
      for (std::size_t r = 0; r < R; ++r) a[r] = rows.codes[r] + g * kGroup;
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        typename Simd::I dots[R];
        Loaded::template dot<R>(points, panel.loaded(g), wide[g % 2], v, a, dots);
        const typename Simd::F scale = panel.scale(g, 0, v);
        LEMMA_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
          sum[r][v] = Simd::fma(Simd::to_float(dots[r]),
                                Simd::mul(scale, Simd::set(rows.scales[r][g])), sum[r][v]);
        }
      }
    }
    for (std::size_t r = 0; r < R; ++r) {
      for (std::size_t v = 0; v < kVectors; ++v) {
        store_columns<Simd>(job.out + (row + r) * job.out_stride, sum[r][v],
                            first + v * Simd::kLanes, job.outputs);
      }
    }
  }
}

}  // namespace lemma::cpu
