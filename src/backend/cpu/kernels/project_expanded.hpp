// SPDX-License-Identifier: Apache-2.0
// Many rows: panels of quantized weights are taken apart once for all of them, some columns at a
// time, into codes of one byte and scales in f32, in the cache. What lies there no longer depends
// on the format but on its kind alone, so formats of one kind share their tiles. The bits are those
// of the panel as it lies (project_int8.hpp), for fewer rows.
#pragma once

#include "backend/cpu/kernels/project_int8.hpp"

namespace lemma::cpu {

/// What a kind of panels has in common once expanded.
template <bool Signed, std::size_t Parts, bool Minimum, bool Folded, int Most>
struct Kind {
  static constexpr bool kSigned = Signed;       ///< codes for dot_signed
  static constexpr std::size_t kParts = Parts;  ///< scales of a group
  static constexpr bool kMinimum = Minimum;
  static constexpr bool kFolded = Folded;  ///< scales of 16 columns are in the codes
  static constexpr int kMost = Most;       ///< the largest code
};

/// The largest code of `Panel` once expanded, as a bound that many share: what matters is how many
/// quads are added in 16 bits (pair_run), and nothing where that is one.
template <typename Simd, typename Panel>
constexpr int expanded_most() {
  constexpr int kMost = Panel::kFolded ? Panel::kFoldedMost : Panel::kMost;
  constexpr std::size_t kRun = pair_run<Simd, kMost>();
  return kRun == 1 ? 127 : kRun == 2 ? 63 : kRun == 4 ? 31 : 15;
}

/// The kind of `Panel`. Where both dot products are one, signed codes are no kind of their own.
template <typename Simd, typename Panel>
using KindOf = Kind<Panel::kSigned && !Simd::kDotsAreOne, Panel::kFolded ? 1 : Panel::kParts,
                    Panel::kMinimum, Panel::kFolded, expanded_most<Simd, Panel>()>;

/// Expanded groups of a panel, read like a panel of which only groups from `from` on are there.
template <typename Simd, typename K>
struct Expanded {
  static constexpr std::size_t kParts = K::kParts;
  static constexpr bool kMinimum = K::kMinimum, kFolded = K::kFolded;
  static constexpr int kMost = K::kMost;
  static constexpr std::size_t kSweep = 0;
  const ExpandedPanel* memory;
  std::size_t from;
  std::int32_t offset;  ///< what every code has too much

  typename Simd::I start(std::int32_t sum) const {
    // Either an offset or a minimum; and none where signed codes are a kind of their own.
    return Simd::set_int(kMinimum || K::kSigned ? 0 : -(sum * offset));
  }
  template <std::size_t Q>
  typename Simd::I quad(std::size_t g, std::size_t v) const {
    return Simd::codes(memory->codes + ((g - from) * 8 + Q) * kVectorBytes + v * 4 * Simd::kLanes);
  }
  static typename Simd::I dot(typename Simd::I sum, typename Simd::I w, typename Simd::I a) {
    if constexpr (K::kSigned) return Simd::dot_signed(sum, w, a);
    return Simd::dot_unsigned(sum, w, a);
  }
  typename Simd::F scale(std::size_t g, std::size_t part, std::size_t v) const {
    return number(memory->scales, (g - from) * kParts + part, v);
  }
  typename Simd::F minimum(std::size_t g, std::size_t v) const {
    return number(memory->minimums, g - from, v);
  }
  typename Simd::F block_scale(std::size_t g, std::size_t v) const {
    return number(memory->scales, (g - from) / kBlockGroups, v);
  }
  typename Simd::F block_minimum(std::size_t g, std::size_t v) const {
    return number(memory->minimums, (g - from) / kBlockGroups, v);
  }
  typename Simd::I minimums(std::size_t g, std::size_t v) const {
    return Simd::codes(memory->pairs + (g - from) * kVectorBytes + v * 4 * Simd::kLanes);
  }

 private:
  static typename Simd::F number(const float* numbers, std::size_t index, std::size_t v) {
    return Simd::load(numbers + index * kPanelRows + v * Simd::kLanes);
  }
};

/// Groups of a panel, being taken apart.
template <typename Simd, typename Panel>
struct Expansion {
  const Panel panel;
  ExpandedPanel& to;
  const std::size_t from;

  void add(std::size_t g, std::size_t v) {
    const std::size_t at = g - from;
    if constexpr (requires { panel.put_codes(g, v, to.codes); }) {
      panel.put_codes(g, v, to.codes + at * 8 * kVectorBytes);
    } else {
      add_quads(g, v, Indices<0, 1, 2, 3, 4, 5, 6, 7>{});
    }
    if constexpr (!Panel::kFolded) {
      LEMMA_UNROLL
      for (std::size_t part = 0; part < Panel::kParts; ++part) {
        put(to.scales, at * Panel::kParts + part, v, panel.scale(g, part, v));
      }
      if constexpr (Panel::kMinimum) put(to.minimums, at, v, panel.minimum(g, v));
    } else {
      if (g % kBlockGroups == 0) add_block(g, v);
      if constexpr (Panel::kMinimum) {
        Simd::store_codes(to.pairs + at * kVectorBytes + v * 4 * Simd::kLanes,
                          panel.minimums(g, v));
      }
    }
  }

 private:
  static void put(float* numbers, std::size_t index, std::size_t v, typename Simd::F x) {
    Simd::store(numbers + index * kPanelRows + v * Simd::kLanes, x);
  }
  void add_block(std::size_t g, std::size_t v) {
    put(to.scales, (g - from) / kBlockGroups, v, panel.folded_scale(g, v));
    if constexpr (Panel::kMinimum) {
      put(to.minimums, (g - from) / kBlockGroups, v, panel.block_minimum(g, v));
    }
  }
  template <std::size_t... Q>
  void add_quads(std::size_t g, std::size_t v, Indices<Q...>) {
    (Simd::store_codes(to.codes + ((g - from) * 8 + Q) * kVectorBytes + v * 4 * Simd::kLanes,
                       codes<Q>(g, v)),
     ...);
  }
  template <std::size_t Q>
  typename Simd::I codes(std::size_t g, std::size_t v) const {
    if constexpr (Panel::kFolded) {
      return panel.template folded<Q>(g, v);
    } else {
      return panel.template quad<Q>(g, v);
    }
  }
};

/// Takes groups [begin, end) of the panel at `bytes` apart; whole blocks where it is folded.
template <typename Simd, typename Panel>
void expand(const std::byte* bytes, std::size_t cols, std::size_t begin, std::size_t end,
            ExpandedPanel& to) {
  Expansion<Simd, Panel> expansion{Panel(bytes, cols), to, begin};
  for (std::size_t g = begin; g < end; ++g) {
    prefetch_ahead<Simd, Panel::kSweep>(bytes, g);
    LEMMA_UNROLL
    for (std::size_t v = 0; v < kPanelRows / Simd::kLanes; ++v) expansion.add(g, v);
  }
}

/// kBeside panels from output `first` on against all rows. The sums wait in the outputs meanwhile,
/// exactly.
template <typename Simd, typename K>
void project_expanded(const ProjectJob& job, const ExpandKernel& kernel, std::size_t first) {
  constexpr std::size_t kP = kBeside<Simd>, kMost = !K::kFolded && K::kParts == 1 && kP == 2 ? 6
                                                    : Simd::kInt8Rows < 4 ? Simd::kInt8Rows
                                                                          : 4;
  ExpandedPanel memory[kP];
  Expanded<Simd, K> panels[kP];
  const std::size_t groups = job.cols / kGroup;
  const std::byte* const bytes = job.panels + first / kPanelRows * job.panel_bytes;
  NextPanels<Simd> next(bytes + kP * job.panel_bytes, kP * job.panel_bytes,
                        (job.rows + kMost - 1) / kMost * groups);
  for (std::size_t begin = 0; begin < groups; begin += kExpandedGroups) {
    const std::size_t end = begin + kExpandedGroups < groups ? begin + kExpandedGroups : groups;
    for (std::size_t p = 0; p < kP; ++p) {
      panels[p] = {memory + p, begin, kernel.offset};
      kernel.expand(bytes + p * job.panel_bytes, job.cols, begin, end, memory[p]);
    }
    in_tiles<kMost, kMost == 6 ? 3 : 1>(0, job.rows, [&]<std::size_t R>(std::size_t row) {
      const TileJob part{.begin = begin,
                         .end = end,
                         .streamed = nullptr,
                         .next = next.take(end - begin),
                         .out = nullptr,
                         .out_stride = 0};
      int8_tile<Simd, Expanded<Simd, K>, R, kP>(job, part, panels, row, first);
    });
  }
}

/// How a format is expanded.
template <typename Simd, typename Panel>
inline constexpr ExpandKernel kExpand = {expand<Simd, Panel>, Panel::kOffset,
                                         Panel::kFolded ? 1 : Panel::kParts, Panel::kMinimum,
                                         Panel::kFolded};

/// Rows from which on panels are expanded; 0: never. Pairs are read as they lie about as fast,
/// where one or two instructions take a quad out; with two scales a group, one panel is not.
template <typename Simd, typename Panel>
constexpr std::size_t expand_from() {
  if constexpr (kPairs<Simd, Panel>) return Panel::kExpands ? Simd::kExpandFrom : 0;
  return kBeside<Simd> == 2 && !Panel::kFolded ? Simd::kExpandFrom / 2 : Simd::kExpandFrom;
}

template <typename Simd, typename Panel>
void project_int8(const ProjectJob& job) {
  constexpr std::size_t kP = kBeside<Simd>, kOutputs = kP * kPanelRows,
                        kFrom = expand_from<Simd, Panel>();
  const std::size_t even = (job.outputs + kPanelRows - 1) / kOutputs * kOutputs;  // has kP panels
  std::size_t first = 0;
  if (kFrom > 0 && job.rows >= kFrom) {
    if constexpr (kFrom > 0) {
      for (; first < even; first += kOutputs) {
        project_expanded<Simd, KindOf<Simd, Panel>>(job, kExpand<Simd, Panel>, first);
      }
    }
  } else if (kPairs<Simd, Panel> && job.rows > 4) {
    if constexpr (kPairs<Simd, Panel>) {
      std::size_t row = 0;
      for (std::size_t blocks = (job.rows + kRowBlock - 1) / kRowBlock; blocks > 0; --blocks) {
        const std::size_t end = row + (job.rows - row + blocks - 1) / blocks;
        for (first = 0; first < even; first += kOutputs) {
          project_pair<Simd, Panel>(job, first, row, end);
        }
        row = end;
      }
    }
  }
  for (; first < job.outputs; first += kPanelRows) project_packed<Simd, Panel>(job, first);
}

}  // namespace lemma::cpu
