// SPDX-License-Identifier: Apache-2.0
// PagePool: which pages of each group exist and how many sequences hold each of them. Logical only:
// a page is a number, its bytes belong to the backend. Pages are handed out lowest free id first,
// so that memory that was touched once is used again before new memory is. Not thread-safe: the
// step loop owns it. The layout must outlive the pool, and the pool its sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "state/layout.hpp"

namespace lemma::state {

using PageId = std::uint32_t;
inline constexpr PageId kNoPage = ~PageId{0};

class PagePool {
 public:
  /// `pages[g]` pages of group g.
  PagePool(const Layout& layout, std::span<const std::size_t> pages);
  PagePool(const PagePool&) = delete;  // sequences hold its address
  PagePool& operator=(const PagePool&) = delete;

  /// A page of `group` with one reference, or kNoPage when none is free.
  PageId allocate(std::uint32_t group) noexcept;
  void retain(std::uint32_t group, PageId page) noexcept;
  /// Drops one reference; the last one frees the page.
  void release(std::uint32_t group, PageId page) noexcept;
  /// References to `page`; 0 when it is free.
  std::uint32_t references(std::uint32_t group, PageId page) const noexcept;

  std::size_t capacity(std::uint32_t group) const noexcept;
  std::size_t used(std::uint32_t group) const noexcept;
  std::size_t free(std::uint32_t group) const noexcept;
  /// Bytes of all pages in use, each counted once however many sequences hold it.
  std::size_t used_bytes() const noexcept;
  const Layout& layout() const noexcept { return *layout_; }

 private:
  struct Group {
    std::vector<std::uint32_t> references;
    std::vector<PageId> free;  ///< a heap: lowest id first; never grows past its first capacity
  };
  const Layout* layout_;
  std::vector<Group> groups_;
};

}  // namespace lemma::state
