// SPDX-License-Identifier: Apache-2.0
#include "state/sequence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.hpp"
#include "base/raise.hpp"

namespace lemma::state {
namespace {

/// Room for `size` elements, growing geometrically as push_back does.
template <typename T>
void make_room(std::vector<T>& values, std::size_t size) {
  if (values.capacity() < size) values.reserve(std::max(size, 2 * values.capacity()));
}

std::string group_name(const Layout& layout, std::uint32_t group) {
  const std::uint32_t window = layout.groups()[group].window;
  return window == 0 ? "full attention" : fmt::format("a window of {}", window);
}

[[noreturn]] void raise_out_of_pages(const PagePool& pool, std::uint32_t group,
                                     std::size_t positions, std::size_t needed) {
  base::raise(
      ErrorKind::kOutOfMemory,
      "state for {} more positions: {} needs pages of {} positions: {} needed, {} of {} free",
      positions, group_name(pool.layout(), group), pool.layout().options().page_size, needed,
      pool.free(group), pool.capacity(group));
}

}  // namespace

Sequence::Sequence(PagePool& pool) : pool_(&pool), tables_(pool.layout().groups().size()) {
  due_.reserve(tables_.size());
}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      tables_(std::exchange(other.tables_, {})),
      tokens_(std::exchange(other.tokens_, {})),
      classes_(std::exchange(other.classes_, {})),
      reserved_(std::exchange(other.reserved_, 0)),
      due_(std::exchange(other.due_, {})),
      block_(std::exchange(other.block_, kNoPage)),
      next_(std::exchange(other.next_, kNoPage)),
      snapshots_(std::exchange(other.snapshots_, {})) {}

Sequence::~Sequence() {
  for (std::uint32_t g = 0; g < tables_.size(); ++g) cut_table(g, 0);
  drop_next();
  cut_blocks(0);
}

bool Sequence::is_fixed(std::uint32_t group) const noexcept {
  return pool_->layout().groups()[group].fixed;
}

std::size_t Sequence::pages_for(std::size_t positions) const noexcept {
  const std::size_t page_size = pool_->layout().options().page_size;
  return positions / page_size + (positions % page_size != 0);
}

Sequence::Need Sequence::need(std::uint32_t group, std::size_t end) const noexcept {
  const std::vector<PageId>& pages = tables_[group].pages;
  Need lacking;
  if (is_fixed(group)) return lacking;
  lacking.append = std::max(pages_for(end), pages.size()) - pages.size();
  const bool partial = length() % pool_->layout().options().page_size != 0;
  if (partial && end > length()) {
    // A copy that is due already stands for a page of our own.
    lacking.replace = pool_->references(group, pages[pages_for(length()) - 1]) > 1;
  }
  return lacking;
}

void Sequence::reserve(std::size_t count) {
  LEMMA_CHECK(count <= std::numeric_limits<std::size_t>::max() - length());
  const std::size_t end = length() + count;
  // First everything that can fail, then the change.
  for (std::uint32_t g = 0; g < tables_.size(); ++g) {
    const Need lacking = need(g, end);
    const std::size_t pages = lacking.append + (lacking.replace ? 1 : 0);
    if (pages > pool_->free(g)) raise_out_of_pages(*pool_, g, count, pages);
  }
  for (std::uint32_t g = 0; g < tables_.size(); ++g) {
    if (!is_fixed(g)) make_room(tables_[g].pages, pages_for(end));
  }
  make_room(due_, due_.size() + tables_.size());
  make_room(tokens_, end);
  make_room(classes_, end);
  if (count > 0) reserve_block();

  for (std::uint32_t g = 0; g < tables_.size(); ++g) {
    const Need lacking = need(g, end);
    if (lacking.replace) replace_last_committed(g);
    for (std::size_t i = 0; i < lacking.append; ++i) {
      tables_[g].pages.push_back(pool_->allocate(g));
    }
  }
  reserved_ = std::max(reserved_, count);
}

/// Last of what can fail, so that no snapshot gives way to a reservation that is refused.
void Sequence::reserve_block() {
  const std::optional<std::uint32_t> group = pool_->layout().fixed_group();
  if (!group || next_ != kNoPage) return;
  if (pool_->free(*group) == 0) {
    const auto own = std::find_if(snapshots_.begin(), snapshots_.end(), [&](const Snapshot& kept) {
      return pool_->references(*group, kept.block) == 1;
    });
    if (own == snapshots_.end()) {
      base::raise(ErrorKind::kOutOfMemory,
                  "state for the next step: a block for fixed slots is needed, 0 of {} free",
                  pool_->capacity(*group));
    }
    drop_snapshot(std::size_t(own - snapshots_.begin()));
  }
  next_ = pool_->allocate(*group);
}

/// Takes over a reference to `block`.
void Sequence::set_block(PageId block) noexcept {
  if (block_ != kNoPage) pool_->release(*pool_->layout().fixed_group(), block_);
  block_ = block;
}

void Sequence::drop_next() noexcept {
  if (next_ != kNoPage) {
    pool_->release(*pool_->layout().fixed_group(), std::exchange(next_, kNoPage));
  }
}

void Sequence::drop_snapshot(std::size_t index) noexcept {
  const auto dropped = snapshots_.begin() + std::ptrdiff_t(index);
  pool_->release(*pool_->layout().fixed_group(), dropped->block);
  snapshots_.erase(dropped);
}

/// Makes the block of `length`, which must be there, the present one.
void Sequence::cut_blocks(std::size_t length) noexcept {
  if (!pool_ || !pool_->layout().fixed_group()) return;
  if (length < this->length() || length == 0) {
    const PageId block = block_at(length);
    if (block != kNoPage) pool_->retain(*pool_->layout().fixed_group(), block);
    set_block(block);
  }
  while (!snapshots_.empty() && snapshots_.back().length > length) {
    drop_snapshot(snapshots_.size() - 1);
  }
}

PageId Sequence::block_at(std::size_t length) const noexcept {
  if (length == 0) return kNoPage;
  if (length == this->length()) return block_;
  const auto kept = std::find_if(snapshots_.begin(), snapshots_.end(),
                                 [&](const Snapshot& s) { return s.length == length; });
  return kept == snapshots_.end() ? kNoPage : kept->block;
}

void Sequence::snapshot() {
  const std::size_t most = pool_->layout().options().snapshots;
  if (block_ == kNoPage || most == 0) return;
  if (!snapshots_.empty() && snapshots_.back().length == length()) return;
  snapshots_.push_back({length(), block_});
  pool_->retain(*pool_->layout().fixed_group(), block_);
  if (snapshots_.size() > most) drop_snapshot((snapshots_.size() - 1) / 2);
}

void Sequence::snapshot_every(std::size_t positions) {
  if (length() - newest_snapshot() >= positions) snapshot();
}

std::vector<std::size_t> Sequence::snapshots() const {
  std::vector<std::size_t> lengths;
  for (const Snapshot& kept : snapshots_) lengths.push_back(kept.length);
  return lengths;
}

void Sequence::replace_last_committed(std::uint32_t group) noexcept {
  PageId& page = tables_[group].pages[pages_for(length()) - 1];
  PageCopy copy;
  copy.group = group;
  copy.from = page;  // its reference moves from the table to the copy
  copy.to = page = pool_->allocate(group);
  copy.positions = static_cast<std::uint32_t>(length() % pool_->layout().options().page_size);
  due_.push_back(copy);
}

std::vector<PageCopy> Sequence::take_copies() {
  if (due_.empty()) return {};
  std::vector<PageCopy> copies = due_;
  for (const PageCopy& copy : due_) pool_->release(copy.group, copy.from);
  due_.clear();
  return copies;
}

void Sequence::commit(std::span<const std::int32_t> tokens, TokenClass token_class) {
  LEMMA_CHECK(tokens.size() <= reserved_);
  LEMMA_CHECK(due_.empty());
  if (next_ != kNoPage) {
    LEMMA_CHECK(tokens.size() == reserved_);
    set_block(std::exchange(next_, kNoPage));
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  classes_.insert(classes_.end(), tokens.size(), token_class);
  reserved_ -= tokens.size();
  for (std::uint32_t g = 0; g < tables_.size(); ++g) release_behind_window(g);
}

void Sequence::release_behind_window(std::uint32_t group) noexcept {
  const std::size_t kept = pool_->layout().retained(group);
  if (length() <= kept) return;
  Table& table = tables_[group];
  const std::size_t behind = (length() - kept) / pool_->layout().options().page_size;
  for (; table.released < behind; ++table.released) {
    pool_->release(group, std::exchange(table.pages[table.released], kNoPage));
  }
}

void Sequence::abandon() noexcept {
  for (std::uint32_t g = 0; g < tables_.size(); ++g) cut_table(g, pages_for(length()));
  drop_next();
  reserved_ = 0;
}

void Sequence::cut_table(std::uint32_t group, std::size_t pages) noexcept {
  Table& table = tables_[group];
  while (table.pages.size() > pages) {
    const PageId page = table.pages.back();
    table.pages.pop_back();
    if (page == kNoPage) continue;
    const auto due = std::find_if(due_.begin(), due_.end(), [&](const PageCopy& copy) {
      return copy.group == group && copy.to == page;
    });
    if (due != due_.end()) {
      pool_->release(group, due->from);
      due_.erase(due);
    }
    pool_->release(group, page);
  }
  table.released = std::min(table.released, table.pages.size());
}

bool Sequence::can_rewind(std::uint32_t group, std::size_t length) const noexcept {
  if (is_fixed(group)) return length == 0 || block_at(length) != kNoPage;
  const std::size_t window = pool_->layout().groups()[group].window;
  if (window == 0 || length == 0) return true;
  // The next query stands at `length` and sees [length + 1 - window, length].
  const std::size_t first = length + 1 > window ? length + 1 - window : 0;
  return first >= tables_[group].released * pool_->layout().options().page_size;
}

RewindPoint Sequence::reachable(std::size_t wish) const {
  RewindPoint point;
  point.length = std::min(wish, length());
  if (wish > length()) point.reason = fmt::format("only {} positions are held", length());
  const std::optional<std::uint32_t> fixed = pool_->layout().fixed_group();
  if (fixed && !can_rewind(*fixed, point.length)) {
    const std::size_t asked = point.length;
    point.length = 0;
    for (const Snapshot& kept : snapshots_) {
      if (kept.length < asked) point.length = kept.length;
    }
    point.reason = fmt::format(
        "recurrent state cannot be cut at {}: the newest snapshot before it stands at {}", asked,
        point.length);
  }
  for (std::uint32_t g = 0; g < tables_.size(); ++g) {
    if (can_rewind(g, point.length)) continue;
    // Whatever is shorter needs even older keys, so only the empty sequence is left.
    const std::size_t window = pool_->layout().groups()[g].window;
    const std::size_t held = tables_[g].released * pool_->layout().options().page_size;
    const std::size_t first = point.length + 1 > window ? point.length + 1 - window : 0;
    point.reason = fmt::format(
        "the query at {} needs keys from {} on, but a window of {} holds them from {} on",
        point.length, first, window, held);
    point.length = 0;
  }
  return point;
}

void Sequence::rewind(std::size_t length) noexcept {
  LEMMA_CHECK(length <= tokens_.size());
  for (std::uint32_t g = 0; g < tables_.size(); ++g) LEMMA_CHECK(can_rewind(g, length));
  for (std::uint32_t g = 0; g < tables_.size(); ++g) cut_table(g, pages_for(length));
  drop_next();
  cut_blocks(length);
  tokens_.resize(length);
  classes_.resize(length);
  reserved_ = 0;
}

/// Holds the block of `other` at `length` and its snapshots up to there.
void Sequence::share_blocks(const Sequence& other, std::size_t length) {
  const std::optional<std::uint32_t> group = pool_->layout().fixed_group();
  if (!group || length == 0) return;
  block_ = other.block_at(length);
  pool_->retain(*group, block_);
  for (const Snapshot& kept : other.snapshots_) {
    if (kept.length > length) continue;
    snapshots_.push_back(kept);
    pool_->retain(*group, kept.block);
  }
}

Sequence Sequence::fork(std::size_t length) const {
  LEMMA_CHECK(length <= tokens_.size());
  LEMMA_CHECK(due_.empty());
  const std::size_t page_size = pool_->layout().options().page_size;
  const std::size_t full = length / page_size;
  const std::size_t partial = length % page_size;
  for (std::uint32_t g = 0; g < tables_.size(); ++g) {
    LEMMA_CHECK(can_rewind(g, length));
    if (!is_fixed(g) && partial != 0 && pool_->free(g) == 0)
      raise_out_of_pages(*pool_, g, partial, 1);
  }
  Sequence copy(*pool_);
  const auto end = static_cast<std::ptrdiff_t>(length);
  copy.tokens_.assign(tokens_.begin(), tokens_.begin() + end);
  copy.classes_.assign(classes_.begin(), classes_.begin() + end);
  copy.share_blocks(*this, length);
  for (std::uint32_t g = 0; g < tables_.size(); ++g) {
    if (is_fixed(g)) continue;
    copy.tables_[g].pages.reserve(pages_for(length));
  }
  for (std::uint32_t g = 0; g < tables_.size(); ++g) {
    if (is_fixed(g)) continue;
    Table& table = copy.tables_[g];
    for (std::size_t i = 0; i < full; ++i) {
      const PageId page = tables_[g].pages[i];
      if (page != kNoPage) pool_->retain(g, page);
      table.pages.push_back(page);
    }
    table.released = std::min(tables_[g].released, full);
    if (partial == 0) continue;
    // Held twice for a moment, which makes the replacement a copy that is due.
    pool_->retain(g, tables_[g].pages[full]);
    table.pages.push_back(tables_[g].pages[full]);
    copy.replace_last_committed(g);
  }
  return copy;
}

}  // namespace lemma::state
