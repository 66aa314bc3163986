// SPDX-License-Identifier: Apache-2.0
// Products of quantized weights with int8 activations whose panels are read as they lie: how rows
// are cut into tiles. What a tile computes, and in which order, is in int8_tile.hpp; many rows have
// their panels expanded first (project_expanded.hpp).
#pragma once

#include "backend/cpu/kernels/int8_tile.hpp"
#include "backend/cpu/kernels/kernels.hpp"

namespace lemma::cpu {

/// Whether few rows meet two panels at a time, where there are five of them or more: with two
/// scales a group there are too few registers.
template <typename Simd, typename Panel>
inline constexpr bool kPairs = kBeside<Simd> == 2 && Panel::kParts == 1;

/// The tallest tile of one panel that is read as it lies. Folded ones have twice as many sums.
template <typename Simd, typename Panel>
inline constexpr std::size_t kAloneRows = Simd::kInt8Rows < 8                     ? Simd::kInt8Rows
                                          : Panel::kFolded || kPairs<Simd, Panel> ? 4
                                                                                  : 8;

/// One panel against all rows, read as it lies.
template <typename Simd, typename Panel>
void project_packed(const ProjectJob& job, std::size_t first) {
  const std::byte* const bytes = job.panels + first / kPanelRows * job.panel_bytes;
  const Panel panel[1] = {Panel(bytes, job.cols)};
  in_tiles<kAloneRows<Simd, Panel>, 1>(0, job.rows, [&]<std::size_t R>(std::size_t row) {
    const TileJob part{.begin = 0,
                       .end = job.cols / kGroup,
                       .streamed = row == 0 ? bytes : nullptr,
                       .next = {},
                       .out = nullptr,
                       .out_stride = 0};
    int8_tile<Simd, Panel, R, 1>(job, part, panel, row, first);
  });
}

/// Rows that go through all panels before others do: they stay in the second cache meanwhile.
inline constexpr std::size_t kRowBlock = 48;

/// Two panels against rows [begin, end), five or more, read as they lie.
template <typename Simd, typename Panel>
void project_pair(const ProjectJob& job, std::size_t first, std::size_t begin, std::size_t end) {
  const std::byte* const bytes = job.panels + first / kPanelRows * job.panel_bytes;
  const Panel pair[2] = {Panel(bytes, job.cols), Panel(bytes + job.panel_bytes, job.cols)};
  const std::size_t groups = job.cols / kGroup;
  NextPanels<Simd> next(bytes + 2 * job.panel_bytes, 2 * job.panel_bytes,
                        (end - begin + 5) / 6 * groups);
  in_tiles<6, 3>(begin, end, [&]<std::size_t R>(std::size_t row) {
    const TileJob part{.begin = 0,
                       .end = groups,
                       .streamed = nullptr,
                       .next = begin == 0 ? next.take(groups) : NextLines{},
                       .out = nullptr,
                       .out_stride = 0};
    int8_tile<Simd, Panel, R, 2>(job, part, pair, row, first);
  });
}

}  // namespace lemma::cpu
