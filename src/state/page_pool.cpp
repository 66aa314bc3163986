// SPDX-License-Identifier: Apache-2.0
#include "state/page_pool.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/check.hpp"

namespace lemma::state {

PagePool::PagePool(const Layout& layout, std::span<const std::size_t> pages)
    : layout_(&layout), groups_(layout.groups().size()) {
  LEMMA_CHECK(pages.size() == groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    LEMMA_CHECK(pages[g] <= kNoPage);
    groups_[g].references.assign(pages[g], 0);
    groups_[g].free.resize(pages[g]);
    // Ascending ids are a heap with the lowest in front.
    std::iota(groups_[g].free.begin(), groups_[g].free.end(), PageId{0});
  }
}

PageId PagePool::allocate(std::uint32_t group) noexcept {
  LEMMA_CHECK(group < groups_.size());
  Group& g = groups_[group];
  if (g.free.empty()) return kNoPage;
  std::pop_heap(g.free.begin(), g.free.end(), std::greater<>{});
  const PageId page = g.free.back();
  g.free.pop_back();
  g.references[page] = 1;
  return page;
}

void PagePool::retain(std::uint32_t group, PageId page) noexcept {
  LEMMA_CHECK(references(group, page) > 0);
  LEMMA_CHECK(groups_[group].references[page] < std::numeric_limits<std::uint32_t>::max());
  ++groups_[group].references[page];
}

void PagePool::release(std::uint32_t group, PageId page) noexcept {
  LEMMA_CHECK(references(group, page) > 0);
  Group& g = groups_[group];
  if (--g.references[page] > 0) return;
  g.free.push_back(page);
  std::push_heap(g.free.begin(), g.free.end(), std::greater<>{});
}

std::uint32_t PagePool::references(std::uint32_t group, PageId page) const noexcept {
  LEMMA_CHECK(group < groups_.size());
  LEMMA_CHECK(page < groups_[group].references.size());
  return groups_[group].references[page];
}

std::size_t PagePool::capacity(std::uint32_t group) const noexcept {
  LEMMA_CHECK(group < groups_.size());
  return groups_[group].references.size();
}

std::size_t PagePool::used(std::uint32_t group) const noexcept {
  return capacity(group) - free(group);
}

std::size_t PagePool::free(std::uint32_t group) const noexcept {
  LEMMA_CHECK(group < groups_.size());
  return groups_[group].free.size();
}

std::size_t PagePool::used_bytes() const noexcept {
  std::size_t bytes = 0;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    bytes += used(g) * layout_->groups()[g].page_bytes;
  }
  return bytes;
}

}  // namespace lemma::state
