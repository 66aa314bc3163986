// SPDX-License-Identifier: Apache-2.0
#include "state/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::state {
namespace {

using algorithm::RowFormat;
using algorithm::Slot;

constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();

std::size_t multiply(std::size_t a, std::size_t b, const char* what) {
  if (b != 0 && a > kMost / b) {
    base::raise(ErrorKind::kInternal, "{} overflow: {} x {} bytes", what, a, b);
  }
  return a * b;
}

std::size_t add(std::size_t a, std::size_t b, const char* what) {
  if (a > kMost - b) base::raise(ErrorKind::kInternal, "{} overflow: {} + {} bytes", what, a, b);
  return a + b;
}

std::size_t align(std::size_t bytes) {
  return add(bytes, Layout::kAlignment - 1, "state page") / Layout::kAlignment * Layout::kAlignment;
}

std::size_t divide_up(std::size_t a, std::size_t b) noexcept {
  return a / b + (a % b != 0);
}

void validate(std::size_t index, const Slot& slot, const LayoutOptions& options) {
  if (slot.kind != algorithm::SlotKind::kRows) {
    base::raise(ErrorKind::kUnsupported, "state slot {}: fixed blocks do not live in pages", index);
  }
  if (slot.width == 0) {
    base::raise(ErrorKind::kUnsupported, "state slot {}: width is 0", index);
  }
  if (slot.ratio == 0 || options.page_size % slot.ratio != 0) {
    base::raise(ErrorKind::kUnsupported,
                "state slot {}: one row per {} tokens does not divide a page of {} positions",
                index, slot.ratio, options.page_size);
  }
  if (options.format == RowFormat::kQ8 && (slot.group == 0 || slot.width % slot.group != 0)) {
    base::raise(ErrorKind::kUnsupported,
                "state slot {}: groups of {} elements, as {} needs, do not divide a width of {}",
                index, slot.group, algorithm::to_string(options.format), slot.width);
  }
}

/// Rows that the formula counts for a slot: complete ones, inside the window.
std::size_t formula_rows(const Slot& slot, std::size_t length) noexcept {
  const std::size_t tokens = slot.window == 0 ? length : std::min<std::size_t>(length, slot.window);
  return tokens / slot.ratio;
}

}  // namespace

Layout::Layout(std::span<const Slot> slots, const LayoutOptions& options) : options_(options) {
  if (options.page_size == 0) {
    base::raise(ErrorKind::kUnsupported, "state pages must cover at least one position");
  }
  slots_.reserve(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    validate(i, slot, options);
    auto group = std::find_if(groups_.begin(), groups_.end(),
                              [&](const PageGroup& g) { return g.window == slot.window; });
    if (group == groups_.end()) group = groups_.insert(groups_.end(), PageGroup{slot.window, 0});
    SlotPlace place;
    place.slot = slot;
    place.group = static_cast<std::uint32_t>(group - groups_.begin());
    place.page_offset = group->page_bytes;
    place.row_bytes = algorithm::row_format_bytes(options.format, slot.width, slot.group);
    const std::size_t rows = options.page_size / slot.ratio;
    const std::size_t bytes = multiply(rows, place.row_bytes, "state page");
    group->page_bytes = align(add(group->page_bytes, bytes, "state page"));
    slots_.push_back(place);
  }
}

std::size_t Layout::retained(std::uint32_t group) const noexcept {
  LEMMA_CHECK(group < groups_.size());
  const std::size_t window = groups_[group].window;
  return window == 0 ? kMost : window + options_.slack;
}

std::size_t Layout::pages_for(std::uint32_t group, std::size_t length,
                              std::size_t step) const noexcept {
  const std::size_t all = divide_up(length, options_.page_size);
  const std::size_t kept = retained(group);
  if (kept >= length || step >= length) return all;  // so the sum below stays far from overflow
  // n positions that begin anywhere in a page touch at most ceil((n - 1) / P) + 1 pages.
  const std::size_t touched = kept + std::max<std::size_t>(step, 1);
  return std::min(all, divide_up(touched - 1, options_.page_size) + 1);
}

std::size_t Layout::bytes_for(std::size_t length, std::size_t step) const noexcept {
  std::size_t bytes = 0;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    bytes += pages_for(g, length, step) * groups_[g].page_bytes;
  }
  return bytes;
}

std::size_t Layout::formula_bytes(std::size_t length) const noexcept {
  std::size_t bytes = 0;
  for (const SlotPlace& place : slots_) bytes += formula_rows(place.slot, length) * place.row_bytes;
  return bytes;
}

std::string Layout::formula(std::size_t length) const {
  struct Term {
    const SlotPlace* place;
    std::size_t count;
  };
  std::vector<Term> terms;  // equal slots, in order of first appearance
  for (const SlotPlace& place : slots_) {
    const auto same = std::find_if(terms.begin(), terms.end(),
                                   [&](const Term& t) { return t.place->slot == place.slot; });
    if (same == terms.end()) {
      terms.push_back({&place, 1});
    } else {
      ++same->count;
    }
  }
  if (terms.empty()) return "no state";
  std::string text;
  for (const Term& term : terms) {
    const Slot& slot = term.place->slot;
    if (!text.empty()) text += " + ";
    text += fmt::format("{} slots x {} rows", term.count, formula_rows(slot, length));
    if (slot.window != 0) text += fmt::format(" (window {})", slot.window);
    if (slot.ratio != 1) text += fmt::format(" (one per {} tokens)", slot.ratio);
    text += fmt::format(" x {} bytes ({} {}", term.place->row_bytes, slot.width,
                        algorithm::to_string(options_.format));
    if (options_.format == RowFormat::kQ8) {
      text += fmt::format(" and {} scales", slot.width / slot.group);
    }
    text += ')';
  }
  return text + fmt::format(" = {} bytes", formula_bytes(length));
}

}  // namespace lemma::state
