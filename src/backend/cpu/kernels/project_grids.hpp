// SPDX-License-Identifier: Apache-2.0
// Readers of the packed panels of the formats of three levels: IQ1, IQ2_XS, IQ2_S and TQ. Codes lie
// as project_formats.hpp says; what they stand for is a constant of the layout. Small scales and
// shifts of IQ1 are bits of 32-bit words, one word an output. (IQ2_XXS and IQ3 are in
// project_points.hpp.)
//
// Where a processor has a lookup among 64 bytes (`Table64`), two codes of two bits and their signs,
// six bits, are an index into two tables, one for each of the codes.
#pragma once

#include "backend/cpu/kernels/project_expanded.hpp"
#include "backend/cpu/kernels/project_formats.hpp"

namespace lemma::cpu {

/// Vectors as numbers of 32 bits, one a lane.
template <typename Simd>
struct Lanes {
  using I = typename Simd::I;
  typedef std::uint32_t Numbers __attribute__((vector_size(sizeof(I))));
  static Numbers of(I x) { return __builtin_bit_cast(Numbers, x); }
  static I back(Numbers x) { return __builtin_bit_cast(I, x); }

  /// The odd scale 2 s + 1 of the `Count` bits s at `from`.
  template <int Count>
  static typename Simd::F odd_scale(I words, std::size_t from) {
    constexpr std::uint32_t kMask = (2u << Count) - 2u;
    return Simd::to_float(back((of(words) >> static_cast<std::uint32_t>(from) << 1 & kMask) | 1u));
  }
  /// `mask` in every byte of the lanes that have the bit, else 0.
  static I flag(I words, std::size_t bit, std::uint32_t mask) {
    if constexpr (requires { Simd::flag(words, bit, mask); }) return Simd::flag(words, bit, mask);
    return back((0u - (of(words) >> static_cast<std::uint32_t>(bit) & 1u)) & (mask * 0x01010101u));
  }
};

/// Whether `Simd` looks up bytes among 64.
template <typename Simd>
inline constexpr bool kLooksUp64 = requires {
  typename Simd::Table64;
};

/// Three levels and a sign: what a code stands for, by level (0..2) and sign.
struct Levels3 {
  std::int8_t plus[3], minus[3];
};
inline constexpr Levels3 kIQ1Levels3 = {{-7, 1, 9}, {-9, -1, 7}};  // 8 g + 1, 8 g - 1
inline constexpr Levels3 kIQ2Levels3 = {{8, 25, 43}, {-8, -25, -43}};

/// A value raised by Offset, or not if that is 0, as a table is given it, which flips top bits for
/// signed values where kSignedOffset is 128.
template <typename Simd, int Offset>
constexpr std::int8_t raised(int value) {
  return static_cast<std::int8_t>(Offset == 0 ? value : value + Offset - Simd::kSignedOffset);
}

/// Codes of two bits that lie as pairs (byte: quads 4 h .. 4 h + 3), and signs as bits, become
/// values. `Simd` decides how.
template <typename Simd, const Levels3& Levels, int Offset = 0>
struct SignedPairs {
  using I = typename Simd::I;
  /// By level in bits 0, 1 and sign in bit 2.
  struct Values {
    std::int8_t values[16];
  };
  static constexpr Values kValues = [] {
    Values table{};
    for (int i = 0; i < 3; ++i) {
      table.values[i] = raised<Simd, Offset>(Levels.plus[i]);
      table.values[4 + i] = raised<Simd, Offset>(Levels.minus[i]);
    }
    return table;
  }();
  typename Simd::Table table = Simd::table(reinterpret_cast<const std::byte*>(kValues.values));

  /// `pairs` is the byte of quads 4 (Q / 4)...; sign of quad Q is bit Q of `signs`.
  template <std::size_t Q>
  I value(I pairs, I signs) const {
    return Simd::lookup(table, Simd::bit_or(Simd::template bits<2, Q % 4 * 2>(pairs),
                                            Simd::template bits<1, Q, 2>(signs)));
  }
  /// All quads that share `pairs` have the sign; `flags` is from Lanes::flag of kFlag.
  static constexpr std::uint32_t kFlag = 4;
  template <std::size_t Q>
  I flagged(I pairs, I flags) const {
    return Simd::lookup(table, Simd::bit_or(Simd::template bits<2, Q % 4 * 2>(pairs), flags));
  }
};

/// The same by two tables of 64: index bits 0 .. 3 two levels, bit 4 and 5 their signs.
template <typename Simd, const Levels3& Levels, int Offset>
requires kLooksUp64<Simd>
struct SignedPairs<Simd, Levels, Offset> {
  using I = typename Simd::I;
  struct Values {
    alignas(64) std::int8_t values[2][64];
  };
  static constexpr Values kValues = [] {
    Values table{};
    for (int i = 0; i < 64; ++i) {
      for (int code = 0; code < 2; ++code) {
        const int level = i >> (2 * code) & 3;
        if (level == 3) continue;
        table.values[code][i] =
            raised<Simd, Offset>(i >> (4 + code) & 1 ? Levels.minus[level] : Levels.plus[level]);
      }
    }
    return table;
  }();
  typename Simd::Table64 tables[2] = {Simd::table64(kValues.values[0]),
                                      Simd::table64(kValues.values[1])};

  template <std::size_t Q>
  I value(I pairs, I signs) const {
    constexpr int kSigns = static_cast<int>(Q / 2 * 2);
    const I two = Q % 4 < 2 ? pairs : Simd::template shift_right<4>(pairs);
    const I moved = kSigns > 4 ? Simd::template shift_right<(kSigns > 4 ? kSigns - 4 : 0)>(signs)
                               : Simd::template shift_left<(kSigns < 4 ? 4 - kSigns : 0)>(signs);
    return Simd::lookup64(tables[Q % 2], Simd::low_nibbles(two, moved));
  }
  static constexpr std::uint32_t kFlag = 0x30;
  template <std::size_t Q>
  I flagged(I pairs, I flags) const {
    const I two = Q % 4 < 2 ? pairs : Simd::template shift_right<4>(pairs);
    return Simd::lookup64(tables[Q % 2], Simd::low_nibbles(two, flags));
  }
};

/// TQ2_0, per 256 columns: [16] f16 d, padded to 64 bytes, then the pairs of 8 groups.
template <typename Simd>
struct PanelTernary : UnsignedCodes<Simd, 1, 1, false, 2> {  // codes stand for q - 1
  static constexpr std::size_t kCodes = 64, kBlock = kCodes + 8 * kPairBytes;
  static constexpr std::size_t kSweep = kBlock / 8;
  const std::byte* panel;

  PanelTernary(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  const std::byte* group(std::size_t g) const { return block(g) + kCodes + g % 8 * kPairBytes; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    return quad_of_pairs<Simd, Q>(group(g), v);
  }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::load_f16(block(g) + v * 2 * Simd::kLanes);
  }
};

/// Bytes that hold five digits of base 3. Raised by 128 they are a fraction of 256: each digit is
/// what stands before the point after a multiplication by 3.
template <typename Simd>
struct Base3 {
  using I = typename Simd::I;
  typedef std::uint8_t Octets __attribute__((vector_size(sizeof(I))));
  typedef std::int8_t Signed __attribute__((vector_size(sizeof(I))));
  struct Planes {
    alignas(64) std::uint8_t four[256];  ///< digits 0 .. 3, a pair of bits each
    alignas(64) std::uint8_t last[256];
  };
  static constexpr Planes kPlanes = [] {
    Planes planes{};
    for (unsigned x = 0; x < 243; ++x) {
      const unsigned byte = (x * 256 + 242) / 243 ^ 128;
      planes.four[byte] =
          static_cast<std::uint8_t>(x / 81 | x / 27 % 3 << 2 | x / 9 % 3 << 4 | x / 3 % 3 << 6);
      planes.last[byte] = static_cast<std::uint8_t>(x % 3);
    }
    return planes;
  }();

  template <std::size_t N>
  static I digit(I bytes) {
    if constexpr (kLooksUp64<Simd>) {
      if constexpr (N == 4) return Simd::lookup256(kPlanes.last, bytes);
      return Simd::template bits<2, 2 * N>(Simd::lookup256(kPlanes.four, bytes));
    } else {
      Octets rest = __builtin_bit_cast(Octets, bytes);
      if constexpr (N > 0) rest = rest + rest + rest;
      if constexpr (N > 1) rest = rest + rest + rest;
      if constexpr (N > 2) rest = rest + rest + rest;
      if constexpr (N > 3) rest = rest + rest + rest;
      const Octets one = (Octets)((Signed)rest > -43), two = (Octets)((Signed)rest > 42);
      return __builtin_bit_cast(I, -(one + two));
    }
  }
};

/// TQ1_0, per 512 columns: [2][16] f16 d, then for each 256: [8][16][4] bytes, of group g five
/// digits of base 3, quads 0 .. 4; [2][3][16][4] bytes, of quads 5 .. 7: bits 2 g, 2 g + 1 of
/// vectors h belong to group 4 h + g. Half of it at an odd end.
template <typename Simd>
struct PanelBase3 : UnsignedCodes<Simd, 1, 1, false, 2> {  // codes stand for q - 1
  static constexpr bool kExpands = true;
  static constexpr std::size_t kBlock = (8 + 2 * 3) * kVectorBytes, kPair = 64 + 2 * kBlock;
  static constexpr std::size_t kSweep = kPair / 16;
  const std::byte* panel;

  PanelBase3(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* pair(std::size_t g) const { return panel + g / 16 * kPair; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const std::byte* const block = pair(g) + 64 + g / 8 % 2 * kBlock + v * 4 * Simd::kLanes;
    if constexpr (Q < 5) {
      return Base3<Simd>::template digit<Q>(Simd::codes(block + g % 8 * kVectorBytes));
    } else {
      const auto four = Simd::codes(block + (8 + g % 8 / 4 * 3 + Q - 5) * kVectorBytes);
      return Lanes<Simd>::back(Lanes<Simd>::of(four) >> static_cast<std::uint32_t>(g % 4 * 2) &
                               0x03030303u);
    }
  }
  typename Simd::F scale(std::size_t g, std::size_t, std::size_t v) const {
    return Simd::load_f16(pair(g) + g / 8 % 2 * 32 + v * 2 * Simd::kLanes);
  }
};

/// IQ2_XS, IQ2_S, per 256 columns: [16] f32 d, [2][16] words of 8 scales of 4 bits, then for each
/// of 8 groups pairs (magnitudes 8, 25, 43) and bits (signs).
template <typename Simd>
struct PanelSigned : UnsignedCodes<Simd, 2, 64, false, 107> {  // so that no sign is to be moved
  static constexpr std::size_t kScales = 64, kCodes = kScales + 2 * 64;
  static constexpr std::size_t kGroupBytes = kPairBytes + kBitBytes;
  static constexpr std::size_t kBlock = kCodes + 8 * kGroupBytes;
  static constexpr std::size_t kSweep = kBlock / 8;
  SignedPairs<Simd, kIQ2Levels3, 64> codes;
  const std::byte* panel;

  PanelSigned(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const std::byte* const at = block(g) + kCodes + g % 8 * kGroupBytes + v * 4 * Simd::kLanes;
    return codes.template value<Q>(Simd::codes(at + Q / 4 * kVectorBytes),
                                   Simd::codes(at + kPairBytes));
  }
  typename Simd::F scale(std::size_t g, std::size_t part, std::size_t v) const {
    const std::size_t at = g % 8 * 2 + part;
    const auto words = Simd::codes(block(g) + kScales + at / 8 * 64 + v * 4 * Simd::kLanes);
    return Simd::mul(Simd::load_f32(block(g) + v * 4 * Simd::kLanes),
                     Lanes<Simd>::template odd_scale<4>(words, at % 8 * 4));
  }
};

/// IQ1_S (one part), IQ1_M (two), per 256 columns: [16] f32 d, [Parts][16] words of 8 scales of 3
/// bits, whose fourth bit in IQ1_S is the group's shift; in IQ1_M [16] words of shifts, four (8
/// columns each) for each group; then the pairs of 8 groups: steps -1, 0, 1. A code is eight times
/// the step, 1 up or down by the shift.
template <typename Simd, std::size_t Parts>
struct PanelSteps : UnsignedCodes<Simd, Parts, 9, false, 18> {
  static constexpr std::size_t kScales = 64, kShifts = kScales + (Parts - 1) * 128;
  static constexpr std::size_t kCodes = kShifts + 64, kBlock = kCodes + 8 * kPairBytes;
  static constexpr std::size_t kSweep = kBlock / 8;
  SignedPairs<Simd, kIQ1Levels3, 9> codes;
  const std::byte* panel;

  PanelSteps(const std::byte* bytes, std::size_t) : panel(bytes) {}
  const std::byte* block(std::size_t g) const { return panel + g / 8 * kBlock; }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    const std::size_t at = v * 4 * Simd::kLanes;
    const std::size_t bit = g % 8 * 4 + (Parts == 1 ? 3 : Q / 2);
    return codes.template flagged<Q>(
        Simd::codes(block(g) + kCodes + g % 8 * kPairBytes + Q / 4 * kVectorBytes + at),
        Lanes<Simd>::flag(Simd::codes(block(g) + kShifts + at), bit, codes.kFlag));
  }
  typename Simd::F scale(std::size_t g, std::size_t part, std::size_t v) const {
    const std::size_t at = g % 8 * Parts + part;
    const auto words = Simd::codes(block(g) + kScales + at / 8 * 64 + v * 4 * Simd::kLanes);
    return Simd::mul(Simd::load_f32(block(g) + v * 4 * Simd::kLanes),
                     Lanes<Simd>::template odd_scale<3>(words, at % 8 * 4));
  }
};

/// One row: groups beside each other and their halves are chains of their own, so that none waits
/// for another. The sums are those of int8_tile.hpp.
template <typename Simd, typename Panel>
struct OneRow {
  using F = typename Simd::F;
  using I = typename Simd::I;
  static constexpr std::size_t kVectors = kPanelRows / Simd::kLanes;
  static constexpr std::size_t kGroups = Simd::kLanes == kPanelRows ? 2 : 1;  ///< beside each other
  const Panel& panel;
  const TileRows<Simd, 1>& row;
  F sum[kVectors];

  /// Adds groups g .. g + kGroups - 1.
  void add(std::size_t g) {
    I dots[kGroups][2][kVectors];
    LEMMA_UNROLL
    for (std::size_t j = 0; j < kGroups; ++j) {
      const std::int32_t* const sums = row.sums[0] + (g + j) * 3;
      const std::int32_t first = Panel::kParts == 1 ? sums[0] : sums[1];
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        dots[j][0][v] = Panel::start(first);
        dots[j][1][v] = Panel::start(sums[0] - first);
      }
    }
    add_quad<0>(g, dots);
    add_quad<1>(g, dots);
    add_quad<2>(g, dots);
    add_quad<3>(g, dots);
    LEMMA_UNROLL
    for (std::size_t j = 0; j < kGroups; ++j) {
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) add_scaled(g + j, v, dots[j][0][v], dots[j][1][v]);
    }
  }

 private:
  template <std::size_t Q>
  void add_quad(std::size_t g, I (&dots)[kGroups][2][kVectors]) const {
    LEMMA_UNROLL
    for (std::size_t j = 0; j < kGroups; ++j) {
      const std::int8_t* const codes = row.codes[0] + (g + j) * kGroup + Q * kQuad;
      LEMMA_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        dots[j][0][v] =
            Panel::dot(dots[j][0][v], panel.template quad<Q>(g + j, v), Simd::splat4(codes));
        dots[j][1][v] = Panel::dot(dots[j][1][v], panel.template quad<Q + 4>(g + j, v),
                                   Simd::splat4(codes + 4 * kQuad));
      }
    }
  }
  void add_scaled(std::size_t g, std::size_t v, I first, I last) {
    const F activation = Simd::set(row.scales[0][g]);
    if constexpr (Panel::kParts == 1) {
      const I both = Lanes<Simd>::back(Lanes<Simd>::of(first) + Lanes<Simd>::of(last));
      sum[v] = Simd::fma(Simd::to_float(both), Simd::mul(panel.scale(g, 0, v), activation), sum[v]);
    } else {
      const F half = Simd::mul(Simd::to_float(first), panel.scale(g, 0, v));
      sum[v] = Simd::fma(Simd::fma(Simd::to_float(last), panel.scale(g, 1, v), half), activation,
                         sum[v]);
    }
  }
};

/// A row from `begin` on in turn; see above. `groups` is a multiple of 8.
template <typename Simd, typename Panel>
void add_one_row(const ProjectJob& job, const Panel& panel, const std::byte* streamed,
                 const TileRows<Simd, 1>& rows, std::size_t row, std::size_t first,
                 std::size_t groups, bool fresh) {
  OneRow<Simd, Panel> one{panel, rows, {}};
  float* const out = job.out + row * job.out_stride;
  for (std::size_t v = 0; v < one.kVectors; ++v) {
    one.sum[v] =
        fresh ? Simd::zero() : load_columns<Simd>(out, first + v * Simd::kLanes, job.outputs);
  }
  for (std::size_t g = 0; g < groups; g += one.kGroups) {
    for (std::size_t j = 0; j < one.kGroups && streamed != nullptr; ++j) {
      prefetch_ahead<Simd, Panel::kSweep>(streamed, g + j);
    }
    one.add(g);
  }
  for (std::size_t v = 0; v < one.kVectors; ++v) {
    store_columns<Simd>(out, one.sum[v], first + v * Simd::kLanes, job.outputs);
  }
}

template <typename Simd, typename Panel>
void project_grid(const ProjectJob& job) {
  if (job.rows != 1 || pair_run<Simd, Panel::kMost>() > 1) return project_int8<Simd, Panel>(job);
  const TileRows<Simd, 1> rows(job, 0);
  for (std::size_t first = 0; first < job.outputs; first += kPanelRows) {
    const std::byte* const bytes = job.panels + first / kPanelRows * job.panel_bytes;
    add_one_row<Simd>(job, Panel(bytes, job.cols), bytes, rows, 0, first, job.cols / kGroup, true);
  }
}

}  // namespace lemma::cpu
