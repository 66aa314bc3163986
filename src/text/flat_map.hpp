// SPDX-License-Identifier: Apache-2.0
// FlatMap: a hash table from 64-bit keys to small values in one array, for tables that are filled
// once and then asked millions of times (merge rules, the edges of a trie). Linear probing, at most
// half full; keys come from files, so they are mixed by a multiplication whose result no simple
// pattern of keys can cluster. No removal.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lemma::text {

template <typename Value>
class FlatMap {
 public:
  static constexpr std::uint64_t kNoKey = ~std::uint64_t{0};  ///< never a key

  FlatMap() : slots_(16) {}

  void reserve(std::size_t entries) {
    if (entries * 2 > slots_.size()) rehash(std::bit_ceil(entries * 2));
  }
  std::size_t size() const noexcept { return size_; }

  /// The value of `key`, or nullptr.
  const Value* find(std::uint64_t key) const noexcept {
    for (std::size_t at = place(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return &slots_[at].value;
      if (slots_[at].key == kNoKey) return nullptr;
    }
  }

  /// Adds a pair unless the key is there already; true if it was added.
  bool add(std::uint64_t key, const Value& value) {
    if ((size_ + 1) * 2 > slots_.size()) rehash(slots_.size() * 2);
    Slot& slot = slot_of(key);
    if (slot.key == key) return false;
    slot = {key, value};
    ++size_;
    return true;
  }

 private:
  struct Slot {
    std::uint64_t key = kNoKey;
    Value value{};
  };

  std::size_t place(std::uint64_t key) const noexcept {
    const std::uint64_t mixed = (key ^ (key >> 32)) * 0x9e3779b97f4a7c15u;
    return static_cast<std::size_t>((mixed ^ (mixed >> 29)) & (slots_.size() - 1));
  }

  Slot& slot_of(std::uint64_t key) {
    std::size_t at = place(key);
    while (slots_[at].key != key && slots_[at].key != kNoKey) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }

  void rehash(std::size_t slots) {
    std::vector<Slot> old(slots);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kNoKey) slot_of(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace lemma::text
