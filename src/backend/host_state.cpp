// SPDX-License-Identifier: Apache-2.0
#include "backend/host_state.hpp"

#include <cstring>
#include <limits>

#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::backend {

HostState::HostState(const state::Layout& layout, std::span<const std::size_t> pages)
    : layout_(&layout) {
  LEMMA_CHECK(pages.size() == layout.groups().size());
  for (std::size_t g = 0; g < pages.size(); ++g) {
    const std::size_t page_bytes = layout.groups()[g].page_bytes;
    if (page_bytes && pages[g] > std::numeric_limits<std::size_t>::max() / page_bytes)
      base::raise(ErrorKind::kOutOfMemory, "{} state pages of {} bytes exceed the address space",
                  pages[g], page_bytes);
    groups_.push_back(base::AlignedBuffer::uninitialized(pages[g] * page_bytes));
  }
}

std::byte* HostState::page(std::uint32_t group, state::PageId id) noexcept {
  const std::size_t bytes = layout_->groups()[group].page_bytes;
  LEMMA_CHECK(id != state::kNoPage && (std::size_t{id} + 1) * bytes <= groups_[group].size());
  return groups_[group].data() + std::size_t{id} * bytes;
}

std::byte* HostState::row(SlotId slot, const state::Sequence& sequence,
                          std::uint32_t position) noexcept {
  const state::SlotPlace& place = layout_->slots()[static_cast<std::size_t>(slot)];
  const std::uint32_t page_size = layout_->options().page_size;
  const state::PageId id = sequence.pages(place.group)[position / page_size];
  const std::size_t in_page = position % page_size / place.slot.ratio;
  return page(place.group, id) + place.page_offset + in_page * place.row_bytes;
}

void HostState::copy_page(std::uint32_t group, state::PageId from, state::PageId to,
                          std::uint32_t positions) {
  for (const state::SlotPlace& place : layout_->slots()) {
    if (place.group != group) continue;
    const std::size_t rows = (positions + place.slot.ratio - 1) / place.slot.ratio;
    std::memcpy(page(group, to) + place.page_offset, page(group, from) + place.page_offset,
                rows * place.row_bytes);
  }
}

std::size_t HostState::allocated_bytes() const noexcept {
  std::size_t sum = 0;
  for (const auto& group : groups_) sum += group.size();
  return sum;
}

}  // namespace lemma::backend
