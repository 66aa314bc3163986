// SPDX-License-Identifier: Apache-2.0
// WordCache: the ids of words met before in the same text. Natural text repeats its words, and
// merging one costs twenty times a look-up. Bounded and direct-mapped: a word takes the place of
// the one that had its slot. It belongs to one encode() call, so no lock is needed and no text of
// one caller stays behind for another.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace lemma::text {

class WordCache {
 public:
  /// A table fit for a text of this length: small texts pay for few slots.
  void open(std::size_t text_bytes) {
    slots_.assign(std::clamp(std::bit_ceil(text_bytes / 8 + 1), kFewest, kMost), Slot{});
  }

  /// The ids of `word` if they are there.
  std::optional<std::span<const TokenId>> find(std::string_view word) noexcept {
    if (slots_.empty() || word.size() > kLongestWord) return std::nullopt;
    const Slot& slot = slots_[place(word)];
    if (slot.length != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0) {
      return std::nullopt;
    }
    return std::span<const TokenId>(slot.ids, slot.count);
  }

  void add(std::string_view word, std::span<const TokenId> ids) noexcept {
    if (slots_.empty() || word.empty() || word.size() > kLongestWord || ids.size() > kMostIds) {
      return;
    }
    Slot& slot = slots_[place(word)];
    slot.length = static_cast<std::uint8_t>(word.size());
    slot.count = static_cast<std::uint8_t>(ids.size());
    std::memcpy(slot.word, word.data(), word.size());
    std::copy(ids.begin(), ids.end(), slot.ids);
  }

 private:
  // A slot is one cache line; 2^14 of them fit the second-level cache of any machine.
  static constexpr std::size_t kLongestWord = 30, kMostIds = 8;
  static constexpr std::size_t kFewest = 16, kMost = std::size_t{1} << 14;
  struct Slot {
    std::uint8_t length = 0, count = 0;
    char word[kLongestWord] = {};
    TokenId ids[kMostIds] = {};
  };
  static_assert(sizeof(Slot) == 64);

  std::size_t place(std::string_view word) const noexcept {
    std::uint64_t hash = word.size();
    for (std::size_t i = 0; i < word.size(); i += 8) {
      std::uint64_t chunk = 0;
      std::memcpy(&chunk, word.data() + i, std::min<std::size_t>(8, word.size() - i));
      hash = (hash ^ chunk) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 32;
    }
    return static_cast<std::size_t>(hash) & (slots_.size() - 1);
  }

  std::vector<Slot> slots_;
};

}  // namespace lemma::text
