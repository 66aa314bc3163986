// SPDX-License-Identifier: Apache-2.0
// HostState: the bytes of all pages in host memory, for backends that compute there. Pages of a
// group are contiguous and 64-byte aligned; memory is taken from the system when first touched.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "base/aligned_buffer.hpp"

namespace lemma::backend {

class HostState final : public StateStore {
 public:
  HostState(const state::Layout& layout, std::span<const std::size_t> pages);

  void copy_page(std::uint32_t group, state::PageId from, state::PageId to,
                 std::uint32_t positions) override;
  std::size_t allocated_bytes() const noexcept override;

  const state::Layout& layout() const noexcept { return *layout_; }
  std::byte* page(std::uint32_t group, state::PageId id) noexcept;
  /// The row of `slot` that holds kv index `position` of `sequence`; its page must exist.
  std::byte* row(SlotId slot, const state::Sequence& sequence, std::uint32_t position) noexcept;

  /// The committed block of a fixed slot; empty while the sequence's length is 0.
  std::span<const float> block(SlotId slot, const state::Sequence& sequence) noexcept;
  /// The block that becomes the committed one when the step under way commits.
  std::span<float> next_block(SlotId slot, const state::Sequence& sequence) noexcept;
  /// Begins a sequence's step: the next blocks of all fixed slots start as copies of the committed
  /// ones, or as zeros where there are none yet. Does nothing where nothing is fixed or reserved.
  void begin_blocks(const state::Sequence& sequence) noexcept;

 private:
  std::span<float> block_in(SlotId slot, state::PageId id) noexcept;

  const state::Layout* layout_;
  std::vector<base::AlignedBuffer> groups_;
};

}  // namespace lemma::backend
