// SPDX-License-Identifier: Apache-2.0
#include "backend/host_state.hpp"

#include <cstring>
#include <limits>
#include <optional>

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

std::span<const float> HostState::block(SlotId slot, const state::Sequence& sequence) noexcept {
  if (sequence.block() == state::kNoPage) return {};
  return block_in(slot, sequence.block());
}

std::span<float> HostState::next_block(SlotId slot, const state::Sequence& sequence) noexcept {
  return block_in(slot, sequence.next_block());
}

std::span<float> HostState::block_in(SlotId slot, state::PageId id) noexcept {
  const state::SlotPlace& place = layout_->slots()[static_cast<std::size_t>(slot)];
  LEMMA_CHECK(place.slot.kind == algorithm::SlotKind::kFixed);
  std::byte* bytes = page(place.group, id) + place.page_offset;
  return {reinterpret_cast<float*>(bytes), place.slot.width};
}

void HostState::begin_blocks(const state::Sequence& sequence) noexcept {
  const std::optional<std::uint32_t> group = layout_->fixed_group();
  if (!group || sequence.next_block() == state::kNoPage) return;
  const std::size_t bytes = layout_->groups()[*group].page_bytes;
  std::byte* next = page(*group, sequence.next_block());
  if (sequence.block() == state::kNoPage) {
    std::memset(next, 0, bytes);
  } else {
    std::memcpy(next, page(*group, sequence.block()), bytes);
  }
}

void HostState::copy_page(std::uint32_t group, state::PageId from, state::PageId to,
                          std::uint32_t positions) {
  LEMMA_CHECK(!layout_->groups()[group].fixed);  // blocks are shared, never copied
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
