// SPDX-License-Identifier: Apache-2.0
#include "state/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "algorithm/fp_formats.hpp"
#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::state {
namespace {

using algorithm::Fp8Form;
using algorithm::RowFormat;
using algorithm::Slot;
using algorithm::SlotKind;

constexpr std::size_t kLargest = std::numeric_limits<std::size_t>::max();

std::size_t multiply(std::size_t a, std::size_t b, const char* what) {
  if (b != 0 && a > kLargest / b) {
    base::raise(ErrorKind::kInternal, "{} overflow: {} x {} bytes", what, a, b);
  }
  return a * b;
}

std::size_t add(std::size_t a, std::size_t b, const char* what) {
  if (a > kLargest - b) base::raise(ErrorKind::kInternal, "{} overflow: {} + {} bytes", what, a, b);
  return a + b;
}

std::size_t align(std::size_t bytes) {
  return add(bytes, Layout::kAlignment - 1, "state page") / Layout::kAlignment * Layout::kAlignment;
}

std::size_t divide_up(std::size_t a, std::size_t b) noexcept {
  return a / b + (a % b != 0);
}

/// How `slot` is held where the session asks for `wanted`. bf16 counts as fine enough: it is chosen
/// for its range.
RowFormat format_of(const Slot& slot, RowFormat wanted) noexcept {
  if (slot.kind == SlotKind::kFixed) return RowFormat::kF32;
  if (wanted == RowFormat::kFp8 && slot.fp8 == Fp8Form::kIndex) return RowFormat::kFp4;
  return slot.at_least_f16 && wanted == RowFormat::kQ8 ? RowFormat::kF16 : wanted;
}

void validate_fp8(std::size_t index, const Slot& slot) {
  if (slot.fp8 == Fp8Form::kNone) {
    base::raise(ErrorKind::kUnsupported,
                "state slot {}: this architecture defines no fp8 rows; choose f16, bf16 or q8",
                index);
  }
  const bool latent = slot.fp8 == Fp8Form::kLatent;
  if (latent ? slot.tail > slot.width
             : !std::has_single_bit(slot.width) || slot.width % algorithm::kFp4Group != 0) {
    base::raise(ErrorKind::kUnsupported, "state slot {}: {} elements have no {} form", index,
                slot.width, latent ? "fp8" : "fp4");
  }
}

void validate(std::size_t index, const Slot& slot, const LayoutOptions& options) {
  if (slot.width == 0) {
    base::raise(ErrorKind::kUnsupported, "state slot {}: width is 0", index);
  }
  if (slot.kind == SlotKind::kFixed) return;
  if (slot.ratio == 0 || options.page_size % slot.ratio != 0) {
    base::raise(ErrorKind::kUnsupported,
                "state slot {}: one row per {} tokens does not divide a page of {} positions",
                index, slot.ratio, options.page_size);
  }
  const RowFormat format = format_of(slot, options.format);
  if (format == RowFormat::kQ8 && (slot.group == 0 || slot.width % slot.group != 0)) {
    base::raise(ErrorKind::kUnsupported,
                "state slot {}: groups of {} elements, as {} needs, do not divide a width of {}",
                index, slot.group, algorithm::to_string(format), slot.width);
  }
  if (options.format == RowFormat::kFp8) validate_fp8(index, slot);
}

/// Rows that the formula counts for a slot: complete ones, inside the window. A block is one.
std::size_t formula_rows(const Slot& slot, std::size_t length) noexcept {
  if (slot.kind == SlotKind::kFixed) return length == 0 ? 0 : 1;
  const std::size_t tokens = slot.window == 0 ? length : std::min<std::size_t>(length, slot.window);
  return tokens / slot.ratio;
}

/// "100 rows (window 8) x 68 bytes (64 q8 and 2 scales)", "1 block x 256 bytes (64 f32)".
std::string formula_term(const SlotPlace& place, std::size_t length) {
  const Slot& slot = place.slot;
  const bool fixed = slot.kind == SlotKind::kFixed;
  std::string text = fmt::format("{} {}", formula_rows(slot, length), fixed ? "block" : "rows");
  if (!fixed && slot.window != 0) text += fmt::format(" (window {})", slot.window);
  if (!fixed && slot.ratio != 1) text += fmt::format(" (one per {} tokens)", slot.ratio);
  text += fmt::format(" x {} bytes ({} {}", place.row_bytes, slot.width,
                      algorithm::to_string(place.format));
  if (place.format == RowFormat::kQ8)
    text += fmt::format(" and {} scales", slot.width / slot.group);
  if (place.format == RowFormat::kFp8)
    text += fmt::format(" and {} scales, the last {} f16",
                        divide_up(slot.width - slot.tail, algorithm::kFp8Group), slot.tail);
  if (place.format == RowFormat::kFp4)
    text += fmt::format(" and {} scales", slot.width / algorithm::kFp4Group);
  return text + ')';
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
    const bool fixed = slot.kind == SlotKind::kFixed;
    const PageGroup wanted{fixed ? 0 : slot.window, 0, fixed};
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const PageGroup& g) {
      return g.fixed == fixed && g.window == wanted.window;
    });
    if (group == groups_.end()) group = groups_.insert(groups_.end(), wanted);
    SlotPlace place;
    place.slot = slot;
    place.group = static_cast<std::uint32_t>(group - groups_.begin());
    place.page_offset = group->page_bytes;
    place.format = format_of(slot, options.format);
    place.row_bytes = algorithm::row_format_bytes(place.format, slot.width, slot.group, slot.tail);
    const std::size_t rows = fixed ? 1 : options.page_size / slot.ratio;
    const std::size_t bytes = multiply(rows, place.row_bytes, "state page");
    group->page_bytes = align(add(group->page_bytes, bytes, "state page"));
    if (fixed) fixed_group_ = place.group;
    slots_.push_back(place);
  }
}

std::size_t Layout::retained(std::uint32_t group) const noexcept {
  LEMMA_CHECK(group < groups_.size());
  const std::size_t window = groups_[group].window;
  return window == 0 ? kLargest : window + options_.slack;
}

std::size_t Layout::pages_for(std::uint32_t group, std::size_t length,
                              std::size_t step) const noexcept {
  if (group == fixed_group_) return length == 0 ? 0 : std::size_t{2} + options_.snapshots;
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
    if (!text.empty()) text += " + ";
    text += fmt::format("{} slots x {}", term.count, formula_term(*term.place, length));
  }
  return text + fmt::format(" = {} bytes", formula_bytes(length));
}

// The least multiple of `asked` positions that holds whole rows of every slot. What would be out of
// proportion stays for the layout to refuse.
static std::uint32_t page_of_whole_rows(std::span<const Slot> slots, std::uint32_t asked) {
  constexpr std::uint64_t kMost = 1u << 16;
  std::uint64_t size = asked;
  for (const Slot& slot : slots)
    if (const std::uint64_t all = std::lcm(size, std::uint64_t{slot.ratio});
        all > 0 && all <= kMost)
      size = all;
  return static_cast<std::uint32_t>(size);
}

Layout layout_with_snapshots(std::span<const Slot> slots, LayoutOptions options, std::size_t length,
                             std::size_t step, double share) {
  // Two, so that the last message of a conversation can be answered anew and written anew; more
  // than 32 help nobody.
  constexpr double kLeast = 2, kMost = 32;
  options.snapshots = 0;
  options.page_size = page_of_whole_rows(slots, options.page_size);
  const Layout bare(slots, options);
  if (!bare.fixed_group()) return bare;
  const double budget = share * double(bare.bytes_for(length, step));
  const double block = double(bare.groups()[*bare.fixed_group()].page_bytes);
  options.snapshots = std::uint32_t(std::clamp(budget / block, kLeast, kMost));
  return Layout(slots, options);
}

}  // namespace lemma::state
