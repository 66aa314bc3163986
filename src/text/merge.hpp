// SPDX-License-Identifier: Apache-2.0
// The merge loop that every byte-pair encoding shares: of all neighbours that may merge, the best
// pair merges first, of equal ones the leftmost, until none is left. The rule itself (scores or
// ranks) is the caller's. A text of n symbols costs at most 3n candidates, each pushed and popped
// once on a heap; there is no recursion.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lemma::text {

/// A run of bytes that is one symbol so far, linked to its neighbours. `tag` is the caller's.
struct MergeSymbol {
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::uint32_t begin, end;  ///< byte offsets; begin == end once it was merged into its left one
  std::uint32_t prev, next;  ///< indices, or kNone
  std::int32_t tag;
};

/// What merging two neighbours gives: the smallest `order` goes first.
struct Merged {
  double order;
  std::int32_t tag;
};

struct MergeCandidate {
  double order;
  std::uint32_t left, right;
  std::uint32_t end;  ///< the right symbol's end when the candidate was made
  std::int32_t tag;
};

/// Buffers that are reused between texts, and a count of the work done.
struct MergeScratch {
  std::vector<MergeSymbol> symbols;
  std::vector<MergeCandidate> heap;
  std::size_t steps = 0;    ///< neighbours looked at and characters split, since construction
  std::size_t dropped = 0;  ///< bytes of text that no token stands for
};

/// Appends a symbol behind the last one.
inline void push_symbol(std::vector<MergeSymbol>& symbols, std::uint32_t begin, std::uint32_t end,
                        std::int32_t tag) {
  const auto index = static_cast<std::uint32_t>(symbols.size());
  const std::uint32_t prev = index == 0 ? MergeSymbol::kNone : index - 1;
  if (index > 0) symbols.back().next = index;
  symbols.push_back({begin, end, prev, MergeSymbol::kNone, tag});
}

/// Texts of so few symbols are merged by looking at all neighbours each time: no heap is faster.
inline constexpr std::size_t kFewSymbols = 24;

/// merge_symbols for at most kFewSymbols symbols.
template <typename Find>
void merge_few_symbols(MergeScratch& scratch, const Find& find) {
  std::vector<MergeSymbol>& symbols = scratch.symbols;
  std::array<std::optional<Merged>, kFewSymbols> pairs;  // [i]: what i and i + 1 merge to
  std::size_t n = symbols.size();
  const auto consider = [&](std::size_t i) {
    ++scratch.steps;
    pairs[i] = find(symbols[i], symbols[i + 1]);
  };
  for (std::size_t i = 0; i + 1 < n; ++i) consider(i);
  for (;;) {
    std::size_t best = n;
    for (std::size_t i = 0; i + 1 < n; ++i) {
      if (pairs[i] && (best == n || pairs[i]->order < pairs[best]->order)) best = i;
    }
    if (best == n) break;
    symbols[best].end = symbols[best + 1].end;
    symbols[best].tag = pairs[best]->tag;
    for (std::size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --n;
    if (best > 0) consider(best - 1);
    if (best + 1 < n) consider(best);
  }
  symbols.resize(n);
}

/// Merges `scratch.symbols` as far as `find(left, right) -> std::optional<Merged>` allows. The
/// survivors are those with begin < end, in order.
template <typename Find>
void merge_symbols(MergeScratch& scratch, const Find& find) {
  std::vector<MergeSymbol>& symbols = scratch.symbols;
  if (symbols.size() <= kFewSymbols) return merge_few_symbols(scratch, find);
  std::vector<MergeCandidate>& heap = scratch.heap;
  const auto worse = [](const MergeCandidate& a, const MergeCandidate& b) {
    return a.order != b.order ? a.order > b.order : a.left > b.left;
  };
  const auto consider = [&](std::uint32_t left, std::uint32_t right) {
    if (left == MergeSymbol::kNone || right == MergeSymbol::kNone) return;
    ++scratch.steps;
    const std::optional<Merged> merged = find(symbols[left], symbols[right]);
    if (!merged) return;
    heap.push_back({merged->order, left, right, symbols[right].end, merged->tag});
    std::push_heap(heap.begin(), heap.end(), worse);
  };

  heap.clear();
  for (std::uint32_t i = 1; i < symbols.size(); ++i) consider(i - 1, i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const MergeCandidate best = heap.back();
    heap.pop_back();
    MergeSymbol& left = symbols[best.left];
    MergeSymbol& right = symbols[best.right];
    // A candidate is stale if either side has been merged with something else since.
    if (left.begin == left.end || left.next != best.right || right.end != best.end) continue;
    left.end = right.end;
    left.tag = best.tag;
    left.next = right.next;
    if (left.next != MergeSymbol::kNone) symbols[left.next].prev = best.left;
    right.begin = right.end;
    consider(left.prev, best.left);
    consider(best.left, left.next);
  }
}

}  // namespace lemma::text
