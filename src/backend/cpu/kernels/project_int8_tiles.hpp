// SPDX-License-Identifier: Apache-2.0
// Many int8 rows against quantized weights on matrix tiles of bytes (AMX). The bits are those of
// int8_tile.hpp: a tile product of the 32 columns of a group, or 16 where scales cover 16, gives
// the same exact whole numbers, and vectors do with them the same steps in the same order. Where
// scales are folded into the codes the activations' still cover 32 columns, so that it is the same.
//
// Panels are expanded (project_expanded.hpp), 512 columns of four at a time, and their codes made
// signed. 16 rows are packed by tiles (packed_rows.hpp). Then step by step: while vectors add the
// numbers of one step to the sums, the tiles multiply what the next one needs, into the other of
// two buffers.
//
// `Tiles` is the unit that multiplies: the instructions in kernels_amx.cpp, plain C++ in
// tiles_emulated.hpp.
#pragma once

#include "backend/cpu/kernels/packed_rows.hpp"

namespace lemma::cpu {

/// Rows from which on tiles are worth the expansion and the packing. An estimate: a row and group
/// of two panels cost VNNI 11 cycles and tiles 3, and the preparation about 45 once.
inline constexpr std::size_t kInt8TilesFrom = 16;
inline constexpr std::size_t kUnitPanels = 4;    ///< that are expanded at a time: a chunk's
inline constexpr std::size_t kStepProducts = 4;  ///< of 16 rows with each of two panels
inline constexpr std::size_t kUnitBytes = 512;   ///< codes of a group: 16 rows or 16 outputs
inline constexpr std::size_t kPairOutputs = 2 * kPanelRows;

/// What the tiles make of a step.
struct StepDots {
  alignas(64) std::int32_t dots[kStepProducts][2][kUnitRows][kPanelRows];
};

/// Some groups of 16 rows and two panels. Groups are counted from the first that is expanded.
struct UnitStep {
  std::size_t row;        ///< the first of the 16
  std::size_t unit;       ///< the first group that is packed with these
  std::size_t panel;      ///< the left one, of those that are expanded
  std::size_t from, end;  ///< groups
  std::size_t packed;     ///< which of two PackedRows
};

/// Sums of a row of two panels.
using UnitSums = float[kPairOutputs];

template <typename Tiles, typename Simd, std::size_t Parts, bool Minimum, bool Folded>
class Int8OnTiles {
 public:
  Int8OnTiles(const ProjectJob& job, const ExpandKernel& kernel) : job_(job), kernel_(kernel) {}

  void run() {
    const std::size_t groups = job_.cols / kGroup;
    tiles_.shape_bytes(kGroup / Parts);
    for (first_ = 0; first_ < job_.outputs; first_ += kUnitPanels * kPanelRows) {
      for (begin_ = 0; begin_ < groups; begin_ += kExpandedGroups) {
        groups_ = groups - begin_ < kExpandedGroups ? groups - begin_ : kExpandedGroups;
        expand_panels();
        multiply_block();
      }
    }
    tiles_.release();
  }

 private:
  using F = typename Simd::F;
  using I = typename Simd::I;
  static_assert(Simd::kLanes == kPanelRows);
  static constexpr std::size_t kStepGroups = kStepProducts / Parts;
  static constexpr std::size_t kRows = 8;  ///< whose sums of two panels stay in registers
  static constexpr std::size_t kNone = ~std::size_t{0};

  void expand_panels() {
    const std::size_t left = (job_.outputs - first_ + kPanelRows - 1) / kPanelRows;
    panels_ = left < kUnitPanels ? left : kUnitPanels;
    for (std::size_t p = 0; p < panels_; ++p) {
      const std::byte* const panel = job_.panels + (first_ / kPanelRows + p) * job_.panel_bytes;
      kernel_.expand(panel, job_.cols, begin_, begin_ + groups_, expanded_[p]);
      if (kernel_.offset == 0) continue;
      make_signed(expanded_[p].codes, groups_ * kUnitBytes, kernel_.offset);
    }
  }

  /// What every code has too much is taken off.
  static void make_signed(std::byte* codes, std::size_t bytes, std::int32_t offset) {
    for (std::size_t i = 0; i < bytes; ++i) {
      codes[i] = static_cast<std::byte>(static_cast<std::int32_t>(codes[i]) - offset);
    }
  }

  /// Everything of the expanded groups. Rows are packed before the step that comes before theirs.
  void multiply_block() {
    next_ = {0, 0, 0, 0, groups_ < kStepGroups ? groups_ : kStepGroups, 0};
    started_ = 0;
    pack(next_);
    while (next_.row != kNone) {
      while (started_ < next_.end) multiply_group();
      const UnitStep now = next_;
      if (now.panel == 0 && now.from == now.unit) pack(after_unit(now));
      reading_ = 1 - reading_;
      next_ = after(now);
      started_ = next_.from;
      add(now);
    }
  }

  std::size_t unit_end(const UnitStep& step) const {
    return groups_ - step.unit < kUnitGroups ? groups_ : step.unit + kUnitGroups;
  }
  /// What comes after a step: more groups, then more panels, then what is packed next.
  UnitStep after(const UnitStep& step) const {
    UnitStep next = step;
    const std::size_t end = unit_end(step);
    next.from = step.end;
    if (next.from == end) {
      next.from = step.unit;
      next.panel += 2;
    }
    if (next.panel >= panels_) return after_unit(step);
    next.end = end - next.from < kStepGroups ? end : next.from + kStepGroups;
    return next;
  }
  /// More groups of the same rows, then more rows, then nothing.
  UnitStep after_unit(const UnitStep& step) const {
    UnitStep next = {step.row, unit_end(step), 0, 0, 0, 1 - step.packed};
    if (next.unit == groups_) {
      next.unit = 0;
      next.row += kUnitRows;
      if (next.row >= job_.rows) return {kNone, 0, 0, 0, 0, 0};
    }
    const std::size_t end = unit_end(next);
    next.from = next.unit;
    next.end = end - next.from < kStepGroups ? end : next.from + kStepGroups;
    return next;
  }

  void pack(const UnitStep& step) {
    if (step.row == kNone) return;
    const UnitRows<Simd> rows(job_, step.row, begin_ + step.unit);
    const std::size_t groups = unit_end(step) - step.unit;
    const QuantizedRows& from = job_.quantized;
    PackedRows& to = rows_[step.packed];
    pack_codes<Simd>(from.codes, rows, groups, to);
    pack_numbers<Simd>(from.scales, rows, groups, to.scales);
    if constexpr (Minimum && !Folded) {
      pack_numbers<Simd>(from.scaled_sums, rows, groups, to.scaled_sums);
    }
    if constexpr (Minimum && Folded) pack_pairs<Simd>(from.sums, rows, groups, to);
  }

  // The tiles' part: `next_`, group by group, into the buffer that is not being read.

  [[gnu::always_inline]] void multiply_group() {
    const std::size_t g = started_++;
    const std::int8_t* const rows = rows_[next_.packed].codes[g - next_.unit][0];
    const std::byte* const left = expanded_[next_.panel].codes + g * kUnitBytes;
    const std::byte* const right = expanded_[right_of(next_.panel)].codes + g * kUnitBytes;
    auto* const to = dots_[1 - reading_].dots + (g - next_.from) * Parts;
    multiply_part<0, 4>(rows, left, right, to[0]);
    if constexpr (Parts == 2) {
      multiply_part<2, 5>(rows + kGroup / 2, left + kUnitBytes / 2, right + kUnitBytes / 2, to[1]);
    }
  }
  /// Sums in tiles Sums, Sums + 1.
  template <int Sums, int Rows>
  [[gnu::always_inline]] void multiply_part(const std::int8_t* rows, const std::byte* left,
                                            const std::byte* right,
                                            std::int32_t (&to)[2][kUnitRows][kPanelRows]) {
    tiles_.template load<Rows>(rows, kGroup);
    tiles_.template load<6>(left, kVectorBytes);
    tiles_.template zero<Sums>();
    tiles_.template add_bytes<Sums, Rows, 6>();
    tiles_.template load<7>(right, kVectorBytes);
    tiles_.template zero<Sums + 1>();
    tiles_.template add_bytes<Sums + 1, Rows, 7>();
    tiles_.template store<Sums>(to[0], kVectorBytes);
    tiles_.template store<Sums + 1>(to[1], kVectorBytes);
  }

  /// Beside a last panel stands the same once more, whose outputs are not there.
  std::size_t right_of(std::size_t panel) const { return panel + 1 < panels_ ? panel + 1 : panel; }

  // The vectors' part.

  /// Adds a step to sums that lie together until their groups are done: outputs of rows whose
  /// distance is a power of two would share few lines of the first cache, too.
  void add(const UnitStep& now) {
    const std::size_t output = first_ + now.panel * kPanelRows;
    const std::size_t columns =
        job_.outputs - output < kPairOutputs ? job_.outputs - output : kPairOutputs;
    const std::size_t rows = job_.rows - now.row < kUnitRows ? job_.rows - now.row : kUnitRows;
    float* const out = job_.out + now.row * job_.out_stride + output;
    UnitSums* const sums = sums_[now.panel / 2];
    if (now.from == 0 && begin_ > 0) {
      copy(out, job_.out_stride, sums[0], kPairOutputs, rows, columns);
    }
    for (std::size_t row = 0; row < rows; row += kRows) {
      if constexpr (!Folded) {
        add_rows(now, row, sums + row, begin_ == 0 && now.from == 0);
      } else {
        add_rows(now, row, folded_ + row, now.from % kBlockGroups == 0);
        if (now.end % kBlockGroups == 0) add_folded(now, row, sums + row);
      }
    }
    if (now.end == groups_) copy(sums[0], kPairOutputs, out, job_.out_stride, rows, columns);
  }

  static void copy(const float* from, std::size_t from_stride, float* to, std::size_t to_stride,
                   std::size_t rows, std::size_t columns) {
    if (columns < kPairOutputs) {
      copy_columns<Simd>(from, from_stride, to, to_stride, rows, columns);
      return;
    }
    for (std::size_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
      Simd::store(to, Simd::load(from));
      Simd::store(to + kPanelRows, Simd::load(from + kPanelRows));
    }
  }

  static void load(F (&sum)[kRows][2], const UnitSums* from, bool fresh) {
    each([&](std::size_t r, std::size_t p) {
      sum[r][p] = fresh ? Simd::zero() : Simd::load(from[r] + p * kPanelRows);
    });
  }
  static void store(const F (&sum)[kRows][2], UnitSums* to) {
    each([&](std::size_t r, std::size_t p) { Simd::store(to[r] + p * kPanelRows, sum[r][p]); });
  }
  template <typename Body>
  [[gnu::always_inline]] static void each(const Body& body) {
    LEMMA_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      body(r, 0);
      body(r, 1);
    }
  }

  /// Rows [row, row + 8) of the 16; the tiles are given something to do on the way.
  [[gnu::noinline]] void add_rows(const UnitStep& now, std::size_t row, UnitSums* sums,
                                  bool fresh) {
    F sum[kRows][2];
    load(sum, sums, fresh);
    const ExpandedPanel* const panels[2] = {expanded_ + now.panel, expanded_ + right_of(now.panel)};
    const PackedRows& rows = rows_[now.packed];
    const std::int32_t* dots = dots_[reading_].dots[0][0][row];
    for (std::size_t g = now.from; g < now.end; ++g, dots += Parts * kProductDots) {
      if ((g - now.from) % 2 == 0 && started_ < next_.end) multiply_group();
      add_group(g, panels, rows.scales[g - now.unit] + row, rows.scaled_sums[g - now.unit] + row,
                dots, sum);
    }
    store(sum, sums);
  }

  static constexpr std::size_t kPanelDots = kUnitRows * kPanelRows, kProductDots = 2 * kPanelDots;

  static F number(const float* numbers, std::size_t index) {
    return Simd::load(numbers + index * kPanelRows);
  }
  static F dot(const std::int32_t* dots, std::size_t r, std::size_t p) {
    return Simd::to_float(
        Simd::codes(reinterpret_cast<const std::byte*>(dots + p * kPanelDots + r * kPanelRows)));
  }

  /// One group from the first of 8 rows on, step by step as in the Tile of int8_tile.hpp.
  [[gnu::always_inline]] static void add_group(std::size_t g,
                                               const ExpandedPanel* const (&panels)[2],
                                               const float* scales, const float* scaled_sums,
                                               const std::int32_t* dots, F (&sum)[kRows][2]) {
    if constexpr (Folded) {
      each([&](std::size_t r, std::size_t p) {
        sum[r][p] = Simd::fma(dot(dots, r, p), Simd::set(scales[r]), sum[r][p]);
      });
      return;
    } else if constexpr (Parts == 2) {
      const F scale[2][2] = {
          {number(panels[0]->scales, g * 2), number(panels[1]->scales, g * 2)},
          {number(panels[0]->scales, g * 2 + 1), number(panels[1]->scales, g * 2 + 1)}};
      each([&](std::size_t r, std::size_t p) {
        const F half = Simd::mul(dot(dots, r, p), scale[0][p]);
        const F whole = Simd::fma(dot(dots + kProductDots, r, p), scale[1][p], half);
        sum[r][p] = Simd::fma(whole, Simd::set(scales[r]), sum[r][p]);
      });
    } else {
      const F scale[2] = {number(panels[0]->scales, g), number(panels[1]->scales, g)};
      each([&](std::size_t r, std::size_t p) {
        sum[r][p] =
            Simd::fma(dot(dots, r, p), Simd::mul(scale[p], Simd::set(scales[r])), sum[r][p]);
      });
    }
    if constexpr (Minimum) {
      const F minimum[2] = {number(panels[0]->minimums, g), number(panels[1]->minimums, g)};
      each([&](std::size_t r, std::size_t p) {
        sum[r][p] = Simd::fnma(minimum[p], Simd::set(scaled_sums[r]), sum[r][p]);
      });
    }
  }

  /// The end of a block of 256 columns: its a, and its b, which tiles have no part in.
  [[gnu::noinline]] void add_folded(const UnitStep& now, std::size_t row, UnitSums* sums) {
    const std::size_t block = now.end / kBlockGroups - 1;
    const ExpandedPanel* const panels[2] = {expanded_ + now.panel, expanded_ + right_of(now.panel)};
    F sum[kRows][2];
    load(sum, sums, begin_ == 0 && block == 0);
    const F scale[2] = {number(panels[0]->scales, block), number(panels[1]->scales, block)};
    each([&](std::size_t r, std::size_t p) {
      sum[r][p] = Simd::fma(Simd::load(folded_[row + r] + p * kPanelRows), scale[p], sum[r][p]);
    });
    store(sum, sums);
    if constexpr (Minimum) subtract_folded(block, panels, rows_[now.packed], now.unit, row, sums);
  }

  [[gnu::noinline]] static void subtract_folded(std::size_t block,
                                                const ExpandedPanel* const (&panels)[2],
                                                const PackedRows& rows, std::size_t unit,
                                                std::size_t row, UnitSums* sums) {
    F b[kRows][2];
    each([&](std::size_t r, std::size_t p) { b[r][p] = Simd::zero(); });
    for (std::size_t g = block * kBlockGroups; g < (block + 1) * kBlockGroups; ++g) {
      const I minimums[2] = {Simd::codes(panels[0]->pairs + g * kVectorBytes),
                             Simd::codes(panels[1]->pairs + g * kVectorBytes)};
      each([&](std::size_t r, std::size_t p) {
        const I pair = Simd::set_int(rows.pairs[g - unit][row + r]);
        b[r][p] = Simd::fma(Simd::to_float(Simd::dot_pairs(minimums[p], pair)),
                            Simd::set(rows.scales[g - unit][row + r]), b[r][p]);
      });
    }
    const F minimum[2] = {number(panels[0]->minimums, block), number(panels[1]->minimums, block)};
    each([&](std::size_t r, std::size_t p) {
      float* const at = sums[r] + p * kPanelRows;
      Simd::store(at, Simd::fnma(b[r][p], minimum[p], Simd::load(at)));
    });
  }

  const ProjectJob& job_;
  const ExpandKernel& kernel_;
  Tiles tiles_;
  std::size_t first_ = 0, begin_ = 0, groups_ = 0, panels_ = 0;
  UnitStep next_{};
  std::size_t started_ = 0;  ///< the group of next_ that is multiplied next
  std::size_t reading_ = 0;  ///< the buffer of products that vectors read
  ExpandedPanel expanded_[kUnitPanels];
  PackedRows rows_[2];
  StepDots dots_[2];
  alignas(64) UnitSums sums_[kUnitPanels / 2][kUnitRows];
  alignas(64) UnitSums folded_[kUnitRows];  ///< a of a block that is not yet whole
};

/// A job of one kind of panels. Not inlined: 230 KiB of the stack belong to it.
template <typename Tiles, typename Simd, std::size_t Parts, bool Minimum, bool Folded>
[[gnu::noinline]] void multiply_kind(const ProjectJob& job, const ExpandKernel& kernel) {
  Int8OnTiles<Tiles, Simd, Parts, Minimum, Folded>(job, kernel).run();
}

/// Whatever a layout's panels are once expanded.
template <typename Tiles, typename Simd>
void multiply_int8_on_tiles(const ProjectJob& job, const ExpandKernel& kernel) {
  if (kernel.folded) {
    if (kernel.minimum) return multiply_kind<Tiles, Simd, 1, true, true>(job, kernel);
    return multiply_kind<Tiles, Simd, 1, false, true>(job, kernel);
  }
  if (kernel.parts == 2) {
    if (kernel.minimum) return multiply_kind<Tiles, Simd, 2, true, false>(job, kernel);
    return multiply_kind<Tiles, Simd, 2, false, false>(job, kernel);
  }
  if (kernel.minimum) return multiply_kind<Tiles, Simd, 1, true, false>(job, kernel);
  return multiply_kind<Tiles, Simd, 1, false, false>(job, kernel);
}

/// The kernel of one layout. `Below::table(layout)` has its expansion, and takes fewer rows.
template <typename Tiles, typename Simd, typename Below, std::size_t Layout>
void project_int8_tiles(const ProjectJob& job) {
  const KernelTable& below = Below::table(Layout);
  if (job.rows < kInt8TilesFrom) return below.project[Layout][0](job);
  multiply_int8_on_tiles<Tiles, Simd>(job, below.expand[Layout]);
}

template <typename Tiles, typename Simd, typename Below,
          std::size_t Layout = static_cast<std::size_t>(WeightKernel::kQ8_0)>
constexpr void put_int8_tiles(Int8Kernels& to) {
  if constexpr (Layout < kWeightKernels) {
    to.project[Layout] = project_int8_tiles<Tiles, Simd, Below, Layout>;
    put_int8_tiles<Tiles, Simd, Below, Layout + 1>(to);
  }
}

/// All quantized layouts, which follow the floats.
template <typename Tiles, typename Simd, typename Below>
constexpr Int8Kernels int8_tile_kernels(const char* name) {
  Int8Kernels kernels{name, {}};
  put_int8_tiles<Tiles, Simd, Below>(kernels);
  return kernels;
}

}  // namespace lemma::cpu
