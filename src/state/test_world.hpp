// SPDX-License-Identifier: Apache-2.0
// A small pool for tests of sequences: f32 slots of 32 elements, one per window, each in a group
// of its own, and if wanted a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "state/layout.hpp"
#include "state/page_pool.hpp"

namespace lemma::state::test {

/// A pool whose groups have the given windows (each a different one), `pages` pages each.
struct World {
  World(std::vector<std::uint32_t> windows, std::uint32_t page_size, std::uint32_t slack,
        std::size_t pages, bool blocks = false)
      : layout(slots(windows, blocks), {algorithm::RowFormat::kF32, page_size, slack}),
        pool(layout, std::vector<std::size_t>(layout.groups().size(), pages)) {}

  static std::vector<algorithm::Slot> slots(const std::vector<std::uint32_t>& windows,
                                            bool blocks) {
    std::vector<algorithm::Slot> made;
    for (const std::uint32_t w : windows)
      made.push_back({algorithm::SlotKind::kRows, 32, w, 1, 32});
    if (blocks) made.push_back({.kind = algorithm::SlotKind::kFixed, .width = 32});
    return made;
  }

  Layout layout;
  PagePool pool;
};

}  // namespace lemma::state::test
