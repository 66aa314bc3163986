// SPDX-License-Identifier: Apache-2.0
// Layout: where every slot of every layer lives inside a page. A page holds the rows of P
// consecutive positions for all slots of one page group; slots share a group when they live
// equally long (the same window). So a window's pages can be given back while those of full
// attention stay. All fixed slots share a group of their own, whose page is one block for each of
// them. Purely arithmetic: no bytes are owned here. Immutable.
//
//   page of a group:   [slot a: P/ratio_a rows][slot b: P/ratio_b rows]...   each slot 64-byte
//   page of blocks:    [slot a: width_a floats][slot b: width_b floats]...   aligned
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "algorithm/row_formats.hpp"
#include "algorithm/slot.hpp"

namespace lemma::state {

/// Where one slot lives.
struct SlotPlace {
  algorithm::Slot slot;
  std::uint32_t group = 0;      ///< page group
  std::size_t page_offset = 0;  ///< bytes from the page's start to the slot's first row
  std::size_t row_bytes = 0;    ///< bytes of one row, scales included, or of the whole block
  /// How this slot really holds its rows: the session's format, f16 where that is too coarse for
  /// the slot, fp4 where its architecture's fp8 means that, f32 in blocks.
  algorithm::RowFormat format = algorithm::RowFormat::kF16;
};

/// Slots that live equally long.
struct PageGroup {
  std::uint32_t window = 0;    ///< 0: kept for ever
  std::size_t page_bytes = 0;  ///< a multiple of Layout::kAlignment
  bool fixed = false;          ///< pages are blocks, which no position owns
};

struct LayoutOptions {
  algorithm::RowFormat format = algorithm::RowFormat::kF16;
  std::uint32_t page_size = 128;  ///< P: positions a page covers
  std::uint32_t slack = 128;      ///< positions that a window keeps beyond itself, for rewinding
  std::uint32_t snapshots = 4;    ///< of its blocks that a sequence keeps at most
};

class Layout {
 public:
  static constexpr std::size_t kAlignment = 64;  ///< of slots in a page, and of pages

  Layout() = default;
  /// Groups are numbered in the order in which the slots first name their window, or first ask for
  /// a block. Throws kUnsupported when a slot cannot be laid out (ratio does not divide P, group
  /// does not divide width where the format has scales, no fp8 form) and kInternal on overflow.
  Layout(std::span<const algorithm::Slot> slots, const LayoutOptions& options);

  const LayoutOptions& options() const noexcept { return options_; }
  const std::vector<SlotPlace>& slots() const noexcept { return slots_; }
  const std::vector<PageGroup>& groups() const noexcept { return groups_; }

  /// The group of the blocks, if any slot is fixed.
  std::optional<std::uint32_t> fixed_group() const noexcept { return fixed_group_; }

  /// Positions at the end of a sequence that `group` keeps: window + slack, or all (SIZE_MAX).
  std::size_t retained(std::uint32_t group) const noexcept;

  /// Pages of `group` that one sequence of `length` positions can hold at the same time, when it
  /// advances by at most `step` positions at once. While a step runs, a window holds what it kept
  /// (window + slack) and all rows of the step, since its first rows still see the former. Blocks
  /// are held twice while a step runs, committed and next, and once for each snapshot.
  std::size_t pages_for(std::uint32_t group, std::size_t length, std::size_t step) const noexcept;
  /// Bytes of state that one sequence of `length` positions needs: what pages really take.
  std::size_t bytes_for(std::size_t length, std::size_t step) const noexcept;
  /// Bytes by the formula alone (rows x row bytes, windows at most W rows, one block for each fixed
  /// slot), and its words, for printing next to what is allocated. For plain keys and values this
  /// is 2 x layers x tokens x kv heads x head dim x bytes.
  std::size_t formula_bytes(std::size_t length) const noexcept;
  std::string formula(std::size_t length) const;

 private:
  LayoutOptions options_;
  std::vector<SlotPlace> slots_;
  std::vector<PageGroup> groups_;
  std::optional<std::uint32_t> fixed_group_;
};

/// A layout with as many snapshots as `share` of the state of a sequence of `length` positions pays
/// for, at least two and at most 32; options.snapshots is ignored. Pages cover options.page_size
/// positions, or as many more as whole rows of every slot need.
Layout layout_with_snapshots(std::span<const algorithm::Slot> slots, LayoutOptions options,
                             std::size_t length, std::size_t step, double share = 0.1);

}  // namespace lemma::state
